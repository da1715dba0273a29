"""Two experiments with a verdict from who answered: what follows from the Pods that answered one request after another.

*prefix-cache*: the same long prompt, again and again. The first may go anywhere; from then on a scheduler that knows
what Pods have cached sends all of them to the Pod of the first. *round-robin*: a different short prompt each time;
all Pods must get their share, or load balancing does not happen.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Experiment = Literal["prefix-cache", "round-robin"]


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """Who answered one request."""

    pod: str
    status: int | None = 200
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The verdict, what it rests on, and what it means."""

    experiment: Experiment
    passed: bool
    evidence: str
    meaning: str
    answers: tuple[ProbeAnswer, ...]

    def told(self) -> str:
        """Return the result for people."""
        rows = [
            f"  {number:3}  {one.pod or '-':40}  {one.seconds:6.2f} s  {one.why}".rstrip()
            for number, one in enumerate(self.answers, start=1)
        ]
        verdict = "passed" if self.passed else "failed"
        return "\n".join([*rows, f"{self.experiment} {verdict}: {self.evidence}", f"  {self.meaning}", ""])

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        rows = [{"pod": one.pod, "status": one.status, "seconds": round(one.seconds, 3)} for one in self.answers]
        return {
            "experiment": self.experiment,
            "verdict": "passed" if self.passed else "failed",
            "evidence": self.evidence,
            "meaning": self.meaning,
            "pods": dict(Counter(one.pod for one in self.answers)),
            "requests": rows,
        }


def prompt(experiment: Experiment, *, number: int, nonce: str) -> str:
    """Return the prompt of a request; `nonce` makes a run's prompts new to every cache."""
    if experiment == "prefix-cache":
        return f"verify-prefix-test-{nonce}-{'x' * 5000}"
    return f"verify-round-robin-{nonce}-{number}"


def judge(experiment: Experiment, answers: Sequence[ProbeAnswer], *, pods: int) -> Result:
    """Return the verdict on the answers of a stack with so many Pods (0 when that is not known)."""
    broken = [one for one in answers if one.status != 200 or not one.pod]
    if broken:
        told = f"{len(broken)} of {len(answers)} requests: {broken[0].why or 'no x-inference-pod in the answer'}"
        return _result(
            experiment, answers, passed=False, evidence=told, meaning="nothing can be said before that works"
        )
    return (_prefix if experiment == "prefix-cache" else _round_robin)(answers, pods)


def _prefix(answers: Sequence[ProbeAnswer], pods: int) -> Result:
    first = answers[0].pod
    held = sum(one.pod == first for one in answers[1:])
    told = f"{held} of {len(answers) - 1} repeats went to {first}, where the first went"
    if pods == 1:
        return _result("prefix-cache", answers, passed=False, evidence=told, meaning="with one Pod it proves nothing")
    if held == len(answers) - 1:
        luck = f"; by chance 1 in {pods**held}" if pods else ""
        meaning = "the scheduler keeps a prompt where its prefix is cached"
        return _result("prefix-cache", answers, passed=True, evidence=told + luck, meaning=meaning)
    meaning = "picks are ignored (pointsman doctor says why), or no prefix scorer decides"
    return _result("prefix-cache", answers, passed=False, evidence=f"{told}: {_shares(answers)}", meaning=meaning)


def _round_robin(answers: Sequence[ProbeAnswer], pods: int) -> Result:
    counts = Counter(one.pod for one in answers)
    wanted = min(pods or 2, len(answers))
    if len(counts) >= max(2, wanted):
        meaning = "requests are spread over all Pods"
        return _result("round-robin", answers, passed=True, evidence=_shares(answers), meaning=meaning)
    known = f" of {pods}" if pods else ""
    meaning = "some Pods get nothing: they are not ready, not in the cluster, or load balancing sticks to one"
    told = f"{len(counts)}{known} Pods answered: {_shares(answers)}"
    return _result("round-robin", answers, passed=False, evidence=told, meaning=meaning)


def _shares(answers: Sequence[ProbeAnswer]) -> str:
    counts = Counter(one.pod for one in answers)
    return ", ".join(f"{pod} {count}" for pod, count in sorted(counts.items()))


def _result(
    experiment: Experiment, answers: Sequence[ProbeAnswer], *, passed: bool, evidence: str, meaning: str
) -> Result:
    return Result(experiment=experiment, passed=passed, evidence=evidence, meaning=meaning, answers=tuple(answers))
