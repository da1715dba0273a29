"""Prometheus families that cost a list index to write and become text only when someone reads.

A family has one set of cells, keyed by label values, and one or more names under which it appears: an old name with
fewer labels shows the sums over the labels that it lacks. So a request is counted once, however many names llm-d has
had for it. One event loop writes and reads; there is no lock.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

Labels = tuple[str, ...]
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_MOST_CELLS = 4096  # of one family; what comes later shares one cell, whose labels all say `other`
_MOST_LETTERS = 256  # of a label value that a client chose


class Name(NamedTuple):
    """A name of a family, and the labels that it has there."""

    name: str
    labels: Labels
    columns: tuple[int, ...]  # where each label's value stands in the family's own keys


def names(name: str, labels: Labels, *olds: tuple[str, Labels]) -> tuple[Name, ...]:
    """Return a family's names; an old one says its labels in the family's words, or as `old=word` where they differ."""
    every = [Name(name, labels, tuple(range(len(labels))))]
    for old, its in olds:
        pairs = [label.partition("=") for label in its]
        shown = tuple(pair[0] for pair in pairs)
        every.append(Name(old, shown, tuple(labels.index(pair[2] or pair[0]) for pair in pairs)))
    return tuple(every)


class Family(Protocol):
    """Something that can be written as text."""

    def render(self) -> Iterable[str]:
        """Return the lines."""


class Counter:
    """A counter, or a gauge that goes up and down by steps."""

    __slots__ = ("_help", "_kind", "_names", "cells")

    def __init__(self, every: tuple[Name, ...], text: str, *, kind: str = "counter") -> None:
        self._names = every
        self._help = text
        self._kind = kind
        self.cells: dict[Labels, float] = {}

    def add(self, key: Labels, amount: float = 1) -> None:
        """Count."""
        if key not in self.cells and len(self.cells) >= _MOST_CELLS:
            key = ("other",) * len(key)
        self.cells[key] = self.cells.get(key, 0) + amount

    def render(self) -> Iterable[str]:
        """Return the lines."""
        return _render_numbers(self._names, self._help, self._kind, self.cells)


class Gauge:
    """A gauge, or a counter that someone else keeps: read when it is asked for."""

    __slots__ = ("_help", "_kind", "_names", "_read")

    def __init__(
        self, every: tuple[Name, ...], text: str, *, read: Callable[[], Mapping[Labels, float]], kind: str = "gauge"
    ) -> None:
        self._names = every
        self._help = text
        self._kind = kind
        self._read = read

    def render(self) -> Iterable[str]:
        """Return the lines."""
        return _render_numbers(self._names, self._help, self._kind, self._read())


class Cell:
    """One label set's distribution."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: "Cell") -> None:
        """Add another's counts."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


class Histogram:
    """A distribution per label set. Writers keep the cell and observe on it."""

    __slots__ = ("_edges", "_help", "_names", "_shown", "bounds", "cells")

    def __init__(
        self, every: tuple[Name, ...], text: str, *, bounds: Sequence[float], shown: Sequence[float] = ()
    ) -> None:
        """Make a family; `shown` are those of the bounds that its first name has, where old names have more."""
        self._names = every
        self._help = text
        self.bounds = bounds
        self._edges = [*(number(bound) for bound in bounds), "+Inf"]
        self._shown = frozenset([*map(number, shown), "+Inf"]) if shown else frozenset(self._edges)
        self.cells: dict[Labels, Cell] = {}

    def cell(self, key: Labels) -> Cell:
        """Return the cell of a label set."""
        cell = self.cells.get(key)
        if cell is None:
            if len(self.cells) >= _MOST_CELLS:
                key = ("other",) * len(key)
            cell = self.cells[key] = self.cells.get(key) or Cell(self.bounds)
        return cell

    def render(self) -> Iterable[str]:
        """Return the lines."""
        for name in self._names:
            yield f"# HELP {name.name} {self._help}\n# TYPE {name.name} histogram\n"
            for key, cell in list(self._seen_as(name).items()):  # it may grow while the page is written
                if any(cell.counts):  # a cell may have been made ahead of its first value
                    yield from self._lines(name, key, cell)

    def _seen_as(self, name: Name) -> Mapping[Labels, Cell]:
        if name is self._names[0]:
            return self.cells
        sums: dict[Labels, Cell] = {}
        for key, cell in self.cells.items():
            short = tuple([key[at] for at in name.columns])
            if short not in sums:
                sums[short] = Cell(self.bounds)
            sums[short].add(cell)
        return sums

    def _lines(self, name: Name, key: Labels, cell: Cell) -> Iterable[str]:
        labels = _labels(name.labels, key)
        before = f"{name.name}_bucket{{{labels},le=" if labels else f"{name.name}_bucket{{le="
        total = 0
        every = name is not self._names[0]
        for edge, count in zip(self._edges, cell.counts, strict=True):
            total += count
            if every or edge in self._shown:
                yield f'{before}"{edge}"}} {total}\n'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name.name}_sum{braces} {number(cell.sum)}\n{name.name}_count{braces} {total}\n"


class ReadHistogram(Histogram):
    """A distribution that someone else keeps: read when it is asked for."""

    __slots__ = ("_read",)

    def __init__(
        self,
        every: tuple[Name, ...],
        text: str,
        *,
        bounds: Sequence[float],
        read: Callable[[], Iterable[tuple[Labels, Sequence[int], float]]],
    ) -> None:
        super().__init__(every, text, bounds=bounds)
        self._read = read

    def render(self) -> Iterable[str]:
        """Return the lines."""
        self.cells = {}
        for key, counts, total in self._read():
            cell = self.cell(key)
            cell.counts, cell.sum = list(counts), total
        return super().render()


def _render_numbers(every: tuple[Name, ...], text: str, kind: str, cells: Mapping[Labels, float]) -> Iterable[str]:
    for name in every:
        yield f"# HELP {name.name} {text}\n# TYPE {name.name} {kind}\n"
        sums = cells
        if name is not every[0]:
            sums = {}
            for key, value in cells.items():
                short = tuple([key[at] for at in name.columns])
                sums[short] = sums.get(short, 0) + value
        for key, value in list(sums.items()):  # it may grow while the page is written
            labels = _labels(name.labels, key)
            yield f"{name.name}{{{labels}}} {number(value)}\n" if labels else f"{name.name} {number(value)}\n"


def _labels(shown: Labels, key: Labels) -> str:
    return ",".join([f'{label}="{escape(value)}"' for label, value in zip(shown, key, strict=True)])


def escape(value: str) -> str:
    """Return a label value as the text format wants it."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def number(value: float) -> str:
    """Return a number as Prometheus reads it, whole ones without a fraction."""
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


class Limited:
    """Lets so many distinct label values through; the rest share `other`, so that no client can fill our memory."""

    __slots__ = ("_seen", "exempt", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.exempt: frozenset[str] = frozenset()  # names that an operator wrote down: always themselves
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the value to show."""
        if value in self._seen or value in self.exempt:
            return value
        if len(self._seen) >= self.most or len(value) > _MOST_LETTERS:
            return "other"
        self._seen.add(value)
        return value
