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
