import pytest
from grpc_health.v1 import health_pb2 as pb

from pointsman.epp.extproc.health import EXT_PROC, Health

SERVING, NOT_SERVING, UNKNOWN = "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"


def status(health: Health, service: str) -> str:
    response = pb.HealthCheckResponse.FromString(health.response(service))
    return str(pb.HealthCheckResponse.ServingStatus.Name(response.status))


@pytest.mark.parametrize("election", [False, True])
@pytest.mark.parametrize("service", ["", "readiness", EXT_PROC])
def test_known_names_answer_for_everything(service: str, election: bool) -> None:
    health = Health(election=election)
    assert status(health, service) == NOT_SERVING
    health.set(serving=True)
    assert status(health, service) == SERVING
    health.note("pool", obstacle="it knows no pool")
    health.note("leader", obstacle="another replica leads")
    assert status(health, service) == NOT_SERVING
    assert health.obstacles == ("it knows no pool", "another replica leads")
    health.note("pool", obstacle="")
    assert status(health, service) == NOT_SERVING
    health.note("leader", obstacle="")
    assert status(health, service) == SERVING


@pytest.mark.parametrize("election", [False, True])
def test_who_lives_is_alive(election: bool) -> None:
    health = Health(election=election)
    health.note("drain", obstacle="it is draining")
    assert status(health, "liveness") == SERVING


def test_an_unknown_name_answers_for_everything_without_election_only() -> None:
    plain, elected = Health(), Health(election=True)
    for health in (plain, elected):
        health.set(serving=True)
    assert status(plain, "inference-extension") == SERVING
    assert status(elected, "inference-extension") == UNKNOWN
    plain.set(serving=False)
    assert status(plain, "inference-extension") == NOT_SERVING


def test_watchers_hear_of_changes_of_the_whole_only() -> None:
    health, heard = Health(), []
    health.subscribe("me", lambda: heard.append(health.serving))
    health.note("protocol", obstacle="none")
    health.set(serving=True)
    assert heard == []
    health.note("protocol", obstacle="")
    health.note("drain", obstacle="draining")
    health.note("leader", obstacle="other")
    assert heard == [True, False]
    health.subscribe("me", None)
    health.note("drain", obstacle="")
    health.note("leader", obstacle="")
    assert heard == [True, False]


def test_the_list_names_every_service() -> None:
    health = Health()
    health.set(serving=True)
    call = health.methods()["/grpc.health.v1.Health/List"](lambda *_: None)
    (answer,) = call.message(b"")
    assert set(pb.HealthListResponse.FromString(answer).statuses) == {"", "liveness", "readiness", EXT_PROC}


@pytest.mark.parametrize("election", [False, True])
def test_without_a_pool_a_picker_that_leads_by_itself_is_not_alive(election: bool) -> None:
    health = Health(election=election)
    health.set(serving=True)
    health.note("drain", obstacle="it is draining")
    assert health.response("liveness") == b"\x08\x01"
    health.note("pool", obstacle="it knows no pool")
    assert health.response("liveness") == (b"\x08\x01" if election else b"\x08\x02")
    health.note("pool", obstacle="")
    assert health.response("liveness") == b"\x08\x01"
