"""Least squares with coefficients that cannot be negative, and how sure each is. Plain Python: problems are small.

The normal equations are solved exactly for the columns that stay above zero; coordinate descent makes sure that no
other would help. Columns are scaled to their largest value, so that all are solved for equally well. The uncertainty of
a coefficient is its standard error among those that are above zero; one that the rows never vary has none.
"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

Row = Sequence[float]
_PASSES = 2_000
_SINGULAR = 1e-9


class Solution(NamedTuple):
    """Coefficients, their standard errors (infinite where the rows say nothing), and the squares left over."""

    values: list[float]
    errors: list[float]
    loss: float


def solve(rows: Sequence[Row], values: Sequence[float]) -> Solution:
    """Return the non-negative coefficients that bring the rows closest to the values."""
    size = len(rows[0])
    scale = [max(abs(row[i]) for row in rows) or 1.0 for i in range(size)]
    gram, right = _normal(rows, values, scale)
    x = _descend(gram, right)
    loss = max(sum(v * v for v in values) + sum(
        x[i] * (sum(g * v for g, v in zip(gram[i], x, strict=True)) - 2 * right[i]) for i in range(size)
    ), 0.0)  # fmt: skip
    noise = loss / max(len(rows) - size, 1)
    certain = _inverse_diagonal(gram, [i for i in range(size) if x[i] > 0])
    spread = [inf if v == inf else sqrt(noise * v) for v in certain]
    return Solution(
        [v / s for v, s in zip(x, scale, strict=True)], [e / s for e, s in zip(spread, scale, strict=True)], loss
    )


def _normal(rows: Sequence[Row], values: Sequence[float], scale: Row) -> tuple[list[list[float]], list[float]]:
    size = len(scale)
    gram = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for row, value in zip(rows, values, strict=True):
        held = [(i, x / s) for i, (x, s) in enumerate(zip(row, scale, strict=True)) if x]
        for i, x in held:
            right[i] += x * value
            line = gram[i]
            for j, y in held:
                line[j] += x * y
    return gram, right


def _descend(gram: list[list[float]], right: Row) -> list[float]:
    """Solve exactly for those that stay above zero, and make sure of it by some passes over all."""
    x = _above_zero(gram, right)
    for _ in range(_PASSES):
        change = 0.0
        for i, line in enumerate(gram):
            if line[i]:
                new = max(0.0, x[i] + (right[i] - sum(g * v for g, v in zip(line, x, strict=True))) / line[i])
                change = max(change, abs(new - x[i]))
                x[i] = new
        if change < 1e-12:
            break
    return x


def _above_zero(gram: list[list[float]], right: Row) -> list[float]:
    """Return the solution without those that would be negative, the worst left out first; zeros where there is none."""
    chosen = [i for i, line in enumerate(gram) if line[i] > 0]
    x = [0.0] * len(right)
    while chosen:
        inverse = _inverse(gram, chosen)
        if inverse is None:
            return x
        found = [sum(v * right[j] for v, j in zip(line, chosen, strict=True)) for line in inverse]
        worst = min(range(len(chosen)), key=found.__getitem__)
        if found[worst] >= 0:
            for i, value in zip(chosen, found, strict=True):
                x[i] = value
            return x
        del chosen[worst]
    return x


def _inverse_diagonal(gram: list[list[float]], chosen: Sequence[int]) -> list[float]:
    """Return the diagonal of the inverse, over the chosen columns; infinite for the others and for copies."""
    found = [inf] * len(gram)
    for n, line in enumerate(_inverse(gram, chosen) or ()):
        found[chosen[n]] = max(line[n], 0.0)
    return found


def _inverse(gram: list[list[float]], chosen: Sequence[int]) -> list[list[float]] | None:
    """Return the inverse over the chosen columns, by elimination; None where they are copies of each other."""
    size = len(chosen)
    work = [[gram[i][j] for j in chosen] + [float(i == j) for j in chosen] for i in chosen]
    for at in range(size):
        pivot = max(range(at, size), key=lambda r: abs(work[r][at]))
        if abs(work[pivot][at]) < _SINGULAR * max(gram[i][i] for i in chosen):
            return None
        work[at], work[pivot] = work[pivot], work[at]
        work[at] = [v / work[at][at] for v in work[at]]
        for r in range(size):
            if r != at and work[r][at]:
                factor = work[r][at]
                work[r] = [a - factor * b for a, b in zip(work[r], work[at], strict=True)]
    return [line[size:] for line in work]
