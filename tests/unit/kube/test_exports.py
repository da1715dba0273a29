"""The package offers what it says, and not by accident more."""

from types import ModuleType

from pointsman import kube


def test_all_is_the_namespace() -> None:
    public = {name for name, value in vars(kube).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert public == set(kube.__all__)
    assert kube.__all__ == sorted(kube.__all__)
