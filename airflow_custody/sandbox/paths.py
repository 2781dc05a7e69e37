"""Know where the service's operations and the control routes are."""

from __future__ import annotations

ROOT = "/api/rest/v1"
CONTROL = "/sandbox"


def below(path: str, prefix: str | None) -> bool:
    """Tell whether a path is at or below a prefix; both may leave out the service's root."""
    if prefix is None:
        return True
    wanted = _short("/" + prefix.strip("/"))
    path = _short(path)
    return wanted == "/" or path == wanted or path.startswith(wanted + "/")


def is_control(path: str) -> bool:
    """Tell whether a path is one of the control routes."""
    return path == CONTROL or path.startswith(CONTROL + "/")


def _short(path: str) -> str:
    if path == ROOT or path.startswith(ROOT + "/"):
        return path.removeprefix(ROOT) or "/"
    return path
