"""What asks the body-based router is the same on one machine and in what people are told to apply on Istio."""

import re
from pathlib import Path

import yaml

from pointsman.render.envoy.pools import ask_router

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "route-by-model.md"


def test_the_page_has_the_filter_that_we_render() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (found,) = (each for each in yaml.safe_load_all(block) if each["kind"] == "EnvoyFilter")
    (patch,) = found["spec"]["configPatches"]
    router = {"cluster_name": "outbound|9004||body-based-router.models.svc.cluster.local"}
    assert patch["patch"]["value"]["typed_config"] == ask_router(router)
    assert patch["patch"]["operation"] == "INSERT_FIRST"
