"""One spelling for a path, however a client wrote it.

Model servers decode `%63` to `c` before they look up a path, and some proxies resolve `..` and merge slashes; whoever
compares what was written reads another path than the one that is served, and a body passes unread that a rewrite was
meant for. So we read a path as the most lenient of them: query and fragment cut off, unreserved characters decoded,
a backslash taken for a slash, dot segments resolved, slashes merged; upper and lower case stay apart. An encoded slash
is refused, because servers differ in whether it parts two segments. Linear in the path's length. Pointsman's own Envoy
does the same, but not every gateway is ours.
"""

import re

from pointsman.epp.request.refusals import BadRequest

_END = re.compile(r"[?#]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_SLASH = re.compile(r"%(?:2[Ff]|5[Cc])")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def canonical(target: str) -> str:
    """Return the path of a request's target in its one spelling.

    Raises BadRequest when a slash is encoded in it.
    """
    path = _END.split(target, maxsplit=1)[0]
    if "%" in path:
        if _SLASH.search(path):
            raise BadRequest("the path has an encoded slash: write it as /")
        path = _ESCAPE.sub(_decode, path)
    return "/" + "/".join(_resolved(path.replace("\\", "/").split("/")))


def _decode(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0]


def _resolved(segments: list[str]) -> list[str]:
    found: list[str] = []
    for segment in segments:
        if segment == "..":
            del found[-1:]
        elif segment not in ("", "."):
            found.append(segment)
    return found
