"""The two spellings of protobuf in JSON that Envoy's configuration is full of: type URLs and durations."""

from typing import Any


def typed(message: str, /, **fields: Any) -> dict[str, Any]:
    """Return an `Any` of the message, named without its `envoy.` prefix."""
    return {"@type": f"type.googleapis.com/envoy.{message}", **fields}


def duration(seconds: float) -> str:
    """Return seconds as protobuf's JSON wants them, such as `1.5s`."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
