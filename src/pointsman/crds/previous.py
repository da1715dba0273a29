"""What a definition was before our last change of it, kept on the definition itself, so that it can be put back.

On the object and not beside it: it is written in the same request as the change and goes with the definition, so it can
neither be missing after an interruption nor outlive what it belongs to. Compressed, because annotations are limited to
256 KiB together; what does not fit is not kept, and then there is no rollback, which is said before the change.
"""

import base64
import binascii
import json
import zlib

from pointsman.core.kinds import Object
from pointsman.crds.definition import Definition
from pointsman.crds.marks import STAMP

PREVIOUS = "crds.llm-d.io/previous"
MIGRATION = "crds.llm-d.io/migration"
LONGEST = 150_000
_LARGEST = 4 << 20  # of what is unpacked: anyone who may write the annotation may have put anything there
_OURS = frozenset({STAMP, PREVIOUS, MIGRATION})


def pack(live: Definition) -> str:
    """Return the definition for the annotation; empty when it does not fit."""
    kept = {"spec": live.spec, "annotations": {name: v for name, v in live.annotations.items() if _is_theirs(name)}}
    text = base64.b64encode(zlib.compress(json.dumps(kept, sort_keys=True).encode(), 9)).decode()
    return text if len(text) <= LONGEST else ""


def unpack(live: Definition) -> Definition | None:
    """Return the definition that was there before; None when none is kept, or what is kept is damaged."""
    text = live.annotations.get(PREVIOUS)
    if not text:
        return None
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _LARGEST)
        kept = json.loads(data)
        document: Object = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": live.name, "annotations": dict(kept["annotations"])},
            "spec": dict(kept["spec"]),
        }
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Definition(document)


def _is_theirs(name: str) -> bool:
    """Tell whether an annotation belongs to the definition itself, and not to whoever installed it."""
    return name not in _OURS and not name.startswith(("kubectl.kubernetes.io/", "meta.helm.sh/"))
