"""Requests of gRPC services, whose bodies are protobuf messages in frames: vLLM's own, and Vertex AI's around JSON.

Read is what decides: the prompt, and of Vertex AI's requests all that the JSON within them says. Nothing is changed in
them, so a model is never renamed. A body that is not one message of its method is a 400. Compressed frames are none of
ours: nothing in them can be read, and neither can the Go picker.

Token ids are packed varints. All are counted, by their last bytes; those that are hashed are read one by one, and there
are only so many of them.
"""

import re
import struct
from array import array
from collections.abc import Mapping

from pointsman.epp.body.payload import BodyReading
from pointsman.epp.body.prompts import TOKEN_BYTES, count_tokens, hash_chains, token_bytes
from pointsman.epp.request.refusals import BadRequest
from pointsman.epp.request.request import Needs, Prompt, Rendered
from pointsman.wire.protobuf import Data, Malformed, fields, read_varint

HEAD = struct.Struct(">BI")
"""What comes before each message: whether it is compressed, and its length."""

_MOST_TOKENS = 1 << 20  # that are read one by one where nobody says how many matter
_VARINT = re.compile(rb"[\x80-\xff]*[\x00-\x7f]")
_GOES_ON = bytes(range(0x80, 0x100))  # the bytes of a varint that are not its last


def message(body: bytes) -> memoryview:
    """Return the one message of a body.

    Raises BadRequest when there is none that can be read.
    """
    if len(body) < HEAD.size:
        raise BadRequest(f"invalid gRPC frame: it has {len(body)} bytes, and its head alone takes {HEAD.size}")
    compressed, size = HEAD.unpack_from(body)
    if len(body) < HEAD.size + size:
        raise BadRequest(f"incomplete gRPC frame: {size} bytes are announced, {len(body) - HEAD.size} are there")
    if compressed:
        raise BadRequest("compressed gRPC messages are not supported: send them as they are")
    return memoryview(body)[HEAD.size : HEAD.size + size]


class VllmReading:
    """A request of vLLM's `Generate` or `Embed`.

    Raises BadRequest when it is none.
    """

    __slots__ = ("_needs", "_output", "_text", "_tokens", "body")

    model = ""  # the service has one model, and requests do not name it
    wants_model = False

    def __init__(self, body: bytes, *, needs: Needs) -> None:
        self._needs = needs
        self._text = b""
        self._tokens: Data = b""  # packed
        self._output: int | None = None
        self.body: Data = body
        try:
            given = self._read(message(body))
        except Malformed as error:
            raise BadRequest(f"the gRPC message is not one of vLLM's: {error}") from None
        if not given:
            raise BadRequest("the gRPC message has neither tokens nor text: give one of them")

    def _read(self, data: Data) -> bool:
        """Take what matters; return whether there is a prompt, if only an empty one."""
        given = False
        for number, wire, start, stop in fields(data, 0, len(data)):
            if number == 2 and wire == 2:
                given = True
                self._read_tokens(data[start:stop])
            elif number == 3 and wire == 2:
                given = True
                self._text = bytes(data[start:stop])
            elif number == 4 and wire == 2:
                self._output = next((read_varint(data, at)[0] for at in _places(data, start, stop, field=8)), None)
        return given

    def _read_tokens(self, data: Data) -> None:
        for number, wire, start, stop in fields(data, 0, len(data)):
            if number == 1 and wire == 2:
                self._text = bytes(data[start:stop])
            elif number == 2 and wire == 2:
                self._tokens = data[start:stop]

    def naming(self, _model: str) -> Data:
        """Return the body: there is no name in it."""
        return self.body

    def prompt(self, _rendered: Rendered | None = None, *, target: str = "") -> Prompt | None:
        """Return the prompt; None when nobody wants it."""
        needs = self._needs
        if not needs.prompt:
            return None
        most = needs.block_tokens * needs.max_blocks or _MOST_TOKENS
        text = _unpacked(self._tokens, most=most) if self._tokens else self._text
        chains = hash_chains([text], model=target, needs=needs)
        return Prompt(
            tokens=_count(self._tokens) if self._tokens else count_tokens(text),
            block_tokens=needs.block_tokens,
            blocks=chains[0] if chains else (),
            max_output_tokens=self._output,
        )


def _places(data: Data, start: int, stop: int, *, field: int) -> list[int]:
    """Return where the varints of a field are."""
    return [at for number, wire, at, _ in fields(data, start, stop) if number == field and wire == 0]


def _count(packed: Data) -> int:
    return len(bytes(packed).translate(None, delete=_GOES_ON))


def _unpacked(packed: Data, *, most: int) -> bytes:
    """Return token ids, four bytes each, of as many as matter."""
    ids = array("Q")
    for found in _VARINT.finditer(bytes(packed[: most * 5])):  # a token takes five bytes at most
        if len(ids) >= most:
            break
        ids.append(read_varint(found[0], 0)[0] & 0xFFFF_FFFF)
    return token_bytes(ids)[: most * TOKEN_BYTES]


class VertexReading(BodyReading):
    """A request of Vertex AI's `PredictionService`: JSON in an `HttpBody` in a message. What is sent on is the message.

    Raises BadRequest when it is none.
    """

    __slots__ = ()

    def __init__(self, body: bytes, *, needs: Needs, headers: Mapping[str, str] | None = None) -> None:
        data = message(body)
        try:
            inner = _last(_last(data, field=2), field=2)
        except Malformed as error:
            raise BadRequest(f"the gRPC message is not one of Vertex AI's: {error}") from None
        super().__init__(bytes(inner), needs=needs, headers=headers, wants_model=False)
        self.body = body

    def naming(self, _model: str) -> Data:
        """Return the body: what is in it is its sender's business."""
        return self.body


def _last(data: Data, *, field: int) -> Data:
    """Return the last value of a field.

    Raises Malformed when there is none.
    """
    found = [
        data[start:stop] for number, wire, start, stop in fields(data, 0, len(data)) if (number, wire) == (field, 2)
    ]
    if not found:
        raise Malformed(f"field {field} is missing")
    return found[-1]
