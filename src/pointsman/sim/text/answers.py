"""What a simulator says: an echo, random sentences of a drawn length, or a row of a dataset.

An answer is complete before its first token is sent: pieces of text, as many as tokens, and why it ends. Lengths
follow llm-d-inference-sim's distribution; all draws are keyed by the request, so an answer does not depend on what
else runs.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from pointsman.sim.engine.chance import Chance
from pointsman.sim.text import tokens

SENTENCES = (
    "The signal is set, and the line ahead is clear. ",
    "Every train that leaves on time arrives at a platform that expects it. ",
    "A good timetable is one that nobody has to read twice. ",
    "Between two stations there is always a little more track than the map admits. ",
    "Please mind the gap between what was asked and what was answered. ",
    "The junction was built for four lines, and six of them use it now. ",
    "Rain makes the rails slow, but it does not make them wrong. ",
    "Somebody has to throw the switch; today it is you. ",
    "Freight waits, passengers complain, and the dispatcher drinks cold tea. ",
    "If the light is red, stop; if it is green, look anyway. ",
    "All routes lead to the depot in the end. ",
)
_PIECES = tuple(tuple(tokens.split(sentence)) for sentence in SENTENCES)
_BUCKETS = tuple(accumulate((0.20, 0.30, 0.20, 0.05, 0.10, 0.15)))
_WIDE = 20  # the width of the narrow buckets of long answers


class Answer(NamedTuple):
    """The tokens of one choice and how it ends."""

    pieces: Sequence[str]
    finish_reason: str
    ids: Sequence[int] = ()
    stop: str | None = None  # the text that ended it, where one was asked for


def echo(text: str, *, max_tokens: int | None) -> Answer:
    """Return the text itself; a limit shows only in the reason, as in the Go simulator."""
    return _echoed(tokens.pieces(text), max_tokens=max_tokens)


def echo_ids(ids: Sequence[int], *, max_tokens: int | None) -> Answer:
    """Return token ids themselves, each one token; as text they are a list with commas."""
    pieces = [*(f"{number}," for number in ids[:-1]), *(str(number) for number in ids[-1:])]
    return _echoed(pieces, max_tokens=max_tokens, ids=ids)


def _echoed(pieces: Sequence[str], *, max_tokens: int | None, ids: Sequence[int] = ()) -> Answer:
    return Answer(pieces, "length" if max_tokens is not None and len(pieces) >= max_tokens else "stop", ids)


def random_answer(chance: Chance, *, max_tokens: int | None, room: int, ignore_eos: bool) -> Answer:
    """Return sentences of a drawn length: at most `max_tokens`, or what the context window leaves."""
    if max_tokens is not None and ignore_eos:
        length, limit = max_tokens, max_tokens
    elif max_tokens is not None:
        length, limit = _bounded_length(chance, max_tokens), max_tokens
    else:
        length, limit = _free_length(chance, room), room
    return Answer(speak(chance, length), "length" if length >= limit else "stop")


def speak(chance: Chance, length: int) -> list[str]:
    """Return exactly so many tokens of random sentences."""
    pieces: list[str] = []
    while len(pieces) < length:
        pieces.extend(chance.choice(_PIECES))
    del pieces[length:]
    return pieces


def _bounded_length(chance: Chance, limit: int) -> int:
    if limit <= 1:
        return limit
    if limit <= 6:
        return chance.between(1, limit)
    draw = chance.random()
    bucket = next(i for i, edge in enumerate(_BUCKETS) if draw < edge or i == 5)
    if bucket == 5:
        return limit
    low, high = _bucket_edges(limit, bucket)
    return chance.between(low, max(low, high))


def _bucket_edges(limit: int, bucket: int) -> tuple[int, int]:
    """Return the smallest and largest length of one of the five buckets below the limit."""
    if limit <= 5 * _WIDE + 1:
        width = (limit - 1) / 5
        return int(bucket * width) + 1, min(int((bucket + 1) * width), limit - 1)
    if bucket < 3:
        return bucket * _WIDE + 1, (bucket + 1) * _WIDE
    if bucket == 3:
        return 3 * _WIDE + 1, limit - 1 - _WIDE
    return limit - _WIDE, limit - 1


def _free_length(chance: Chance, room: int) -> int:
    if room < 20:
        return chance.between(1, max(room, 1))
    while True:
        length = int(chance.gauss(40, 20))
        if 1 <= length <= room:
            return length


def cut(answer: Answer, *, stop: Sequence[str]) -> Answer:
    """Return the answer up to the first stop text, which itself is left out."""
    text = "".join(answer.pieces)
    found = [(at, word) for word in stop if word and (at := text.find(word)) >= 0]
    if not found:
        return answer
    end, word = min(found)
    kept = []
    for piece in answer.pieces:
        kept.append(piece[:end])
        end -= len(piece)
        if end <= 0:
            break
    return Answer(kept, "stop", stop=word)
