import pytest

from pointsman.render.serving.names import ServiceNames, child_name


@pytest.mark.parametrize(
    ("parent", "suffix", "expected"),
    [
        ("asdf", "-deployment", "asdf-deployment"),
        ("f" * 63, "-deployment", "ffffffffffffffffffff105d7597f637e83cc711605ac3ea4957-deployment"),
        ("f" * 63, "-deploy", "ffffffffffffffffffffffff105d7597f637e83cc711605ac3ea4957-deploy"),
        ("f" * 63, "f" * 63, "fffffffffffffffffffffffffffffff0502661254f13c89973cb3a83e0cbec0"),
        ("a", "f" * 63, "ab5cfd486935decbc0d305799f4ce4414ffffffffffffffffffffffffffffff"),
        ("b" * 32, "f" * 32, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb329c7c81b9ab3ba71aa139066aa5625d"),
        ("aaaa", "b---a" * 20, "aaaa7a3f7966594e3f0849720eced8212c18b---ab---ab---ab---ab---ab"),
    ],
)
def test_names_are_those_that_knative_makes(parent: str, suffix: str, expected: str) -> None:
    assert child_name(parent, suffix) == expected


@pytest.mark.parametrize("length", [1, 30, 50, 63])
def test_no_name_of_a_part_is_too_long_and_no_two_are_alike(length: int) -> None:
    names = ServiceNames(service="a" * length, namespace="n")
    kinds = [name for name in dir(ServiceNames) if isinstance(getattr(ServiceNames, name), property)]
    made = [getattr(names, kind) for kind in kinds if kind != "prefix"]
    assert all(len(name) <= 63 for name in made)
    assert len(set(made)) == len(made)
