"""Golden files: what is rendered for a case, to the letter.

After a change that is meant, write them anew and read the difference:
`POINTSMAN_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/unit/render && git diff`.
"""

import os
from pathlib import Path
from typing import Any

import yaml

from pointsman.render.manifests.stack import Stack
from pointsman.render.scheduler.install import Installed
from pointsman.render.serving.service import LLMStack

REWRITE = bool(os.environ.get("POINTSMAN_REWRITE_GOLDEN"))


class _Literal(yaml.SafeDumper):
    """Writes text of several lines as such, so that a difference in a file within a file is one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Literal.add_representer(str, _text)


def check_golden(path: Path, stack: Stack | Installed | LLMStack) -> None:
    """Compare what is rendered with its golden file, or write that anew."""
    text = written(stack)
    if REWRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def written(stack: Stack | Installed | LLMStack) -> str:
    """Return a stack as its golden file: what is said about it as comments, then the objects."""
    parts = [f"{one.condition}: {one.needed} of {one.replicas} of {one.kind} {one.name}" for one in stack.components]
    notices = [f"{one.type}: {one.holds}, {one.reason}: {one.message}" for one in stack.notices]
    head = "".join(f"# {line}\n" for line in (*parts, *notices, f"URL: {stack.gateway_url or 'none'}"))
    how: dict[str, Any] = {"sort_keys": False, "width": 120, "default_flow_style": None, "explicit_start": True}
    body: str = yaml.dump_all(stack.objects, Dumper=_Literal, **how)
    return head + body
