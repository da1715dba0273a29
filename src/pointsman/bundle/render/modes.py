"""Which namespaces an operator watches: what the bundle supports, and what is asked for.

`("",)` means all of them. Nothing asked means all if the bundle can, else its own namespace if it can; an operator that
can do neither needs to be told.
"""

from collections.abc import Sequence

from pointsman.bundle.model import Bundle, BundleFinding, Refused

ALL = ("",)


def targets_for(bundle: Bundle, *, namespace: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the namespaces to watch, each once.

    Raises Refused for a set that the bundle's install modes do not allow.
    """
    modes = bundle.csv.modes
    targets = tuple(dict.fromkeys(asked or ())) or _default(modes, namespace=namespace)
    missing = _missing(modes, targets, namespace=namespace)
    if missing is None:
        return targets
    has = ", ".join(sorted(modes)) or "none"
    watched = "all namespaces" if targets == ALL else ", ".join(each or '""' for each in targets)
    message = (
        f"cannot watch {watched}: that takes install mode {missing}, and its install modes are {has}"
        if targets
        else f"{missing} must be named with --watch-namespace: its install modes are {has}"
    )
    raise Refused([BundleFinding("install-modes", message)], name=bundle.name)


def _default(modes: frozenset[str], *, namespace: str) -> tuple[str, ...]:
    if "AllNamespaces" in modes:
        return ALL
    return (namespace,) if "OwnNamespace" in modes else ()


def _missing(modes: frozenset[str], targets: tuple[str, ...], *, namespace: str) -> str | None:
    """Return the install mode (or, without targets, the number of namespaces) that is wanting."""
    if not targets:
        return "the namespaces to watch" if "MultiNamespace" in modes else "the one namespace to watch"
    if targets == ALL:
        needed = ["AllNamespaces"]
    elif len(targets) == 1:
        needed = ["OwnNamespace" if targets[0] == namespace else "SingleNamespace"]
    elif "" in targets:
        return "AllNamespaces alone"
    else:
        needed = ["MultiNamespace", *(["OwnNamespace"] if namespace in targets else [])]
    return next((mode for mode in needed if mode not in modes), None)
