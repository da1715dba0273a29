import io

import msgspec
from rich.console import Console
from tests.unit.local.test_state import STACK

from pointsman.local.observe import ObservedEndpoint
from pointsman.local.screen import invitation, lines, table

ENDPOINT = ObservedEndpoint(
    name="simulator-0", address="127.0.0.1:8200", state="ready", pid=1, running=2, waiting=0, inflight=2, picks=17
)
SILENT = ObservedEndpoint(
    name="simulator-1",
    address="127.0.0.1:8201",
    state="unready",
    pid=1,
    running=None,
    waiting=None,
    inflight=None,
    picks=None,
)


def test_table_shows_load_and_picks_and_gaps() -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(table(STACK, [ENDPOINT, SILENT]))
    text = output.getvalue()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "simulator" in line]
    assert rows == [
        ["simulator-0", "127.0.0.1:8200", "ready", "2", "0", "17"],
        ["simulator-1", "127.0.0.1:8201", "unready", "-", "-", "-"],
    ]
    assert "http://127.0.0.1:8080" in text


def test_lines_say_the_same_without_a_terminal() -> None:
    assert lines(STACK, [ENDPOINT]) == [
        "ready: http://127.0.0.1:8080 (m, FailClose)",
        "  simulator-0 127.0.0.1:8200 ready running=2 waiting=0 picks=17",
    ]


def test_services_have_their_places() -> None:
    stack = msgspec.structs.replace(STACK, services={"front:8200": "127.0.0.1:1"})
    assert lines(stack, [])[1:] == ["  Service front:8200 is at 127.0.0.1:1"]


def test_the_invitation_says_where_the_page_is() -> None:
    stack = msgspec.structs.replace(STACK, pickers={"picker": {"metrics": "http://127.0.0.1:9090"}})
    assert "\nwatch: http://127.0.0.1:9090/\n" in invitation(stack)
    assert "watch:" not in invitation(msgspec.structs.replace(STACK, picker={}))
