"""The page itself: one HTML file, ES modules and a style sheet from this package, under a strict policy.

The policy lets the page load what is beside it and ask this picker, and nothing else: no inline script or style, no
other site, no frame around it, and no text that becomes markup (`trusted-types`). The files tell nothing about a
picker, so they need no token; what they then ask for does.
"""

from collections.abc import Callable
from importlib.resources import files

from pointsman.core.http import Request, Response, header_lines
from pointsman.epp.page.route import Answer, Route

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = header_lines(
    {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }
)


def routes() -> dict[str, Route]:
    """Return a route for each file: the page at `/`, what it loads under `/page/`."""
    found = {}
    for file in files(__package__).joinpath("static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            found[path] = Route(answer=_file(Response(200, file.read_bytes(), kind, HEADERS)), open=True)
    return found


def _file(response: Response) -> Callable[[Request], Answer]:
    return lambda _request: response
