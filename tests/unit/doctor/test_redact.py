"""Nothing secret leaves with a bundle, wherever it stood; everything else does."""

import pytest

from pointsman.doctor.redact import GONE, redact, redact_text

KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


def test_secrets_go_and_the_rest_stays() -> None:
    document = {
        "metadata": {
            "name": "epp",
            "managedFields": [{"x": 1}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"env":"s3cret"}', "note": "kept"},
        },
        "env": [{"name": "HF_TOKEN", "value": "hf_s3cret"}, {"name": "POD_NAME", "value": "epp-1"}],
        "args": [
            "--max-tokens=5",
            "--api-key=s3cret",
            "--token",
            "s3cret",
            "--max-tokens",
            "5",
            f"--header=Authorization: Bearer {JWT}",
        ],
        "tls": {"private_key": {"inline_string": KEY}, "certificate_chain": {"inline_bytes": "s3cret"}},
        "lua": f"local k = [[{KEY}]]",
        "url": "https://me:s3cret@example.invalid/x",
        "password": "s3cret",
        "secretName": "epp-tls",
        "secretKeyRef": {"name": "x", "key": "y"},
        "max_tokens": "7",
        "port": 9002,
        "nothing": None,
    }
    left = redact(document)
    text = str(left)
    assert "s3cret" not in text
    assert "PRIVATE KEY" not in text
    assert JWT not in text
    assert left["env"] == [{"name": "HF_TOKEN", "value": GONE}, {"name": "POD_NAME", "value": "epp-1"}]
    assert left["args"][:6] == ["--max-tokens=5", f"--api-key={GONE}", "--token", GONE, "--max-tokens", "5"]
    assert left["metadata"]["annotations"]["note"] == "kept"
    assert (left["secretName"], left["max_tokens"], left["port"], left["nothing"]) == ("epp-tls", "7", 9002, None)
    assert left["url"] == f"https://{GONE}@example.invalid/x"
    assert "managedFields" not in left["metadata"]


def test_depth_is_bounded() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    assert GONE in str(redact(deep))


@pytest.mark.parametrize(
    "piece", ["x", "eyJ-", "-", "--a", "://", "://a:", "bearer ", "-----BEGIN PRIVATE KEY-----", "a://b:c"]
)
def test_no_text_costs_more_than_its_length(piece: str) -> None:
    """Hundreds of kilobytes of it; what takes the square of that is not done today."""
    assert len(redact_text(piece * (300_000 // len(piece)))) >= 0
