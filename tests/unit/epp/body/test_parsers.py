import pytest

from pointsman.epp.body.parsers import DEFAULT, H2C, PARSERS, ParserChoice, contradiction
from pointsman.epp.request.refusals import BadRequest


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/completions", "openai-parser"),
        ("/v1/chat/completions?x=1", "openai-parser"),
        ("/some/prefix/v1/embeddings", "openai-parser"),
        ("/v1/completions/render", "openai-parser"),
        ("/v1/messages", "anthropic-parser"),
        ("/v1/messages/count_tokens", "anthropic-parser"),
        ("/messages", "anthropic-parser"),
        ("/anthropic/messages?beta=true", "anthropic-parser"),
        ("/inference/v1/generate", "vllmhttp-parser"),
        ("/v1/models", "passthrough-parser"),
        ("/mycompletions", "passthrough-parser"),
        ("/", "passthrough-parser"),
    ],
)
def test_the_longest_suffix_wins(path: str, name: str) -> None:
    assert ParserChoice().choose({":path": path}).name == name


def test_sglang_takes_what_vllm_does_not() -> None:
    choice = ParserChoice(["sglanghttp-parser", "vllmhttp-parser"])
    assert choice.choose({":path": "/generate"}).name == "sglanghttp-parser"
    assert choice.choose({":path": "/inference/v1/generate"}).name == "vllmhttp-parser"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("method", ["ChatCompletions", "RawPredict", "StreamRawPredict"])
def test_vertex_claims_the_paths_of_its_service(version: str, method: str) -> None:
    path = f"/google.cloud.aiplatform.{version}.PredictionService/{method}"
    assert ParserChoice(["openai-parser", "vertexai-parser"]).choose({":path": path}).name == "vertexai-parser"


def test_a_parser_behind_one_that_takes_everything_is_never_asked() -> None:
    choice = ParserChoice(["openai-parser", "passthrough-parser", "anthropic-parser"])
    assert choice.choose({":path": "/v1/messages"}).name == "passthrough-parser"
    assert choice.choose({":path": "/v1/completions"}).name == "openai-parser"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("/v1/messages", True), ("/v1/messages/count_tokens", False), ("/v1/completions", True), ("/generate", False)],
)
def test_which_requests_must_name_a_model(path: str, wanted: bool) -> None:
    choice = ParserChoice(["openai-parser", "anthropic-parser", "sglanghttp-parser"])
    assert choice.choose({":path": path}).wants_model == wanted


def test_where_the_path_comes_from() -> None:
    choice = ParserChoice()
    assert choice.choose({"x-original-path": "/v1/messages"}).name == "anthropic-parser"
    assert choice.choose({"x-forwarded-path": "/v1/messages"}).name == "anthropic-parser"
    assert choice.choose({}).name == "openai-parser"


def test_a_path_that_nobody_claims() -> None:
    with pytest.raises(BadRequest, match="no parser claims the path /x"):
        ParserChoice(["openai-parser"]).choose({":path": "/x"})


def test_the_default_is_known() -> None:
    assert set(DEFAULT) <= set(PARSERS)


@pytest.mark.parametrize(
    ("names", "protocol", "good"),
    [
        (DEFAULT, "http", True),
        (DEFAULT, H2C, True),
        (("openai-parser",), "http", True),
        (("vllmgrpc-parser",), H2C, True),
        (("vllmgrpc-parser",), "http", False),
        (("vllmgrpc-parser", "vertexai-parser"), "http", False),
        (("vllmgrpc-parser", "openai-parser"), "http", True),
        (("vllmgrpc-parser", "passthrough-parser"), "http", True),
        (("openai-parser",), "kubernetes.io/wss", False),
    ],
)
def test_parsers_and_the_protocol_of_a_pool(names: tuple[str, ...], protocol: str, good: bool) -> None:
    assert (contradiction(names, protocol=protocol) == "") == good


def test_a_contradiction_says_what_to_change() -> None:
    assert contradiction(("vllmgrpc-parser",), protocol="http") == (
        "the pool's appProtocol is 'http', and vllmgrpc-parser wants kubernetes.io/h2c: "
        "change the pool's appProtocol or the configuration's requestHandler.parsers"
    )
