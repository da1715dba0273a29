"""Which bundle of a catalog is meant: the head of the graph and not of the list, a version, an upgrade."""

import json
import time
from typing import Any

import pytest

from pointsman.bundle.sources.catalogs import Catalog, read_catalog, select
from pointsman.bundle.versions import in_range, parse_version
from pointsman.core.errors import UserError


def catalog(*entries: dict[str, Any], channel: str = "stable", default: str = "stable") -> Catalog:
    documents: list[dict[str, Any]] = [
        {"schema": "olm.package", "name": "p", "defaultChannel": default, "icon": None},
        {"schema": "olm.channel", "name": channel, "package": "p", "entries": list(entries)},
        {"schema": "olm.package", "name": "other", "defaultChannel": "x"},
        {"schema": "olm.deprecations", "package": "p"},
    ]
    for entry in entries:
        version = entry["name"].partition(".v")[2]
        stated = [{"type": "olm.package", "value": {"packageName": "p", "version": version}}]
        documents.append(
            {"schema": "olm.bundle", "name": entry["name"], "package": "p", "image": "i", "properties": stated}
        )
    text = "\n".join(json.dumps(each) for each in documents).encode()
    return read_catalog({"p/catalog.json": text, "README.md": b"no"}, "p", name="catalog")


CHAIN = (
    {"name": "p.v1.0.0"},
    {"name": "p.v1.2.0", "replaces": "p.v1.0.0", "skips": ["p.v1.1.0"]},
    {"name": "p.v1.1.0", "replaces": "p.v1.0.0"},
)


def test_the_head_is_what_nothing_replaces_or_skips() -> None:
    assert select(catalog(*CHAIN)).name == "p.v1.2.0"
    assert select(catalog(*reversed(CHAIN))).name == "p.v1.2.0"


def test_a_range_skips_what_lies_in_it() -> None:
    entries = ({"name": "p.v1.0.0"}, {"name": "p.v1.5.0"}, {"name": "p.v2.0.0", "skipRange": ">=1.0.0 <2.0.0"})
    assert select(catalog(*entries)).name == "p.v2.0.0"


@pytest.mark.parametrize("version", ["1.1.0", "v1.1.0", "p.v1.1.0"])
def test_a_version_is_found_as_the_bundle_states_it(version: str) -> None:
    assert select(catalog(*CHAIN), version=version).name == "p.v1.1.0"


def test_an_upgrade_goes_where_the_graph_leads() -> None:
    entries = (*CHAIN, {"name": "p.v3.0.0", "replaces": "p.v1.2.0", "skipRange": ">=1.1.0 <3.0.0"})
    assert select(catalog(*entries), installed="1.0.0").name == "p.v1.2.0"
    assert select(catalog(*entries), installed="1.1.0").name == "p.v3.0.0"
    with pytest.raises(UserError, match=r"nothing upgrades 3\.0\.0"):
        select(catalog(*entries), installed="3.0.0")


@pytest.mark.parametrize(
    ("made", "options", "complaint"),
    [
        pytest.param(
            catalog(*CHAIN), {"version": "9.0.0"}, r"has no version 9\.0\.0: there is 1\.0\.0, 1\.2\.0", id="version"
        ),
        pytest.param(catalog(*CHAIN), {"channel": "fast"}, "has no channel 'fast': there is stable", id="channel"),
        pytest.param(catalog(*CHAIN, default=""), {}, "has no channel ''", id="no default"),
        pytest.param(
            catalog({"name": "p.v1.0.0"}, {"name": "p.v2.0.0"}), {}, "not one head but p.v1.0.0, p.v2.0.0", id="heads"
        ),
        pytest.param(catalog(), {}, "not one head but none", id="empty"),
        pytest.param(
            catalog({"name": "p.v1.0.0", "replaces": "p.v2.0.0"}, {"name": "p.v2.0.0", "replaces": "p.v1.0.0"}),
            {},
            "not one head but none",
            id="a circle",
        ),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(made: Catalog, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        select(made, **options)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        pytest.param({"a.json": b"{}"}, "has no package 'p': there is none", id="nothing"),
        pytest.param({"a.json": b"{"}, "a.json: not valid JSON", id="no JSON"),
        pytest.param({"a.json": b"[1]"}, "holds what is no mapping", id="a list"),
        pytest.param({"a.json": b"[" * 100_000}, "not valid JSON", id="nesting"),
        pytest.param(
            {"a.yaml": b"schema: olm.package\nname: p\ndefaultChannel: 1"}, "Expected `str`, got `int`", id="type"
        ),
        pytest.param(
            {"a.yaml": b"{schema: olm.package, name: p}\n" + b"---\n{schema: olm.channel, package: p, name: c}\n" * 2},
            "catalog: p: channel 'c' is there twice",
            id="one channel twice",
        ),
    ],
)
def test_a_catalog_that_cannot_be_read(files: dict[str, bytes], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        read_catalog(files, "p", name="catalog")


def test_versions_are_in_the_order_of_semver() -> None:
    ordered = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.10",
    ]
    assert sorted(map(parse_version, reversed(ordered))) == [parse_version(each) for each in ordered]
    assert parse_version("v1.0.0+build") == parse_version("1.0.0")


@pytest.mark.parametrize(
    ("version", "text", "inside"),
    [
        ("1.1.0", ">=1.0.0 <1.2.0", True),
        ("1.2.0", ">=1.0.0 <1.2.0", False),
        ("3.0.0", "<1.0.0 || >=2.0.0 !=2.5.0", True),
        ("2.5.0", "<1.0.0 || >=2.0.0 !=2.5.0", False),
        ("1.0.0", "1.0.0", True),
        ("1.0.0", "> 0.9.0", True),
        ("1.2.9", "1.2.x", True),
        ("1.3.0", "1.2.x", False),
        ("1.3.0", "1.x", True),
        ("1.2.9", ">1.2.x", False),
        ("1.3.0", ">1.2.x", True),
        ("1.2.0", ">=1.2.x <=1.3.x", True),
        ("1.4.0", ">=1.2.x <=1.3.x", False),
        ("1.2.0", "<1.2.x", False),
    ],
)
def test_ranges(version: str, text: str, inside: bool) -> None:
    assert in_range(parse_version(version), text) is inside


@pytest.mark.parametrize("text", ["", ">=1.0.0 <", ">=1.0.0 = ", "!1.2.x", ">=1.0.0, <2.0.0", ">=a"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UserError, match=r"is no range|is no version|excludes a whole range"):
        in_range(parse_version("1.0.0"), text)


def test_a_long_channel_with_ranges_is_gone_through_once() -> None:
    long = catalog(*({"name": f"p.v1.{at}.0", "skipRange": f">=1.0.0 <1.{at}.0"} for at in range(2000)))
    began = time.process_time()
    assert select(long).name == "p.v1.1999.0"
    assert time.process_time() - began < 5, "for each entry again it is a minute"


def test_a_field_with_nothing_behind_it_is_not_there() -> None:
    assert select(catalog({"name": "p.v1.0.0", "replaces": None, "skips": None})).name == "p.v1.0.0"


@pytest.mark.parametrize("text", ["", "1.0", "1.0.x", "1.0.0.0", "01.0.0", "1" * 300 + ".0.0", "a"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UserError, match="is no version"):
        parse_version(text)
