"""The paths of the service's operations and of the control routes."""

from __future__ import annotations

ROOT = "/api/rest/v1"
CONTROL = "/sandbox"


def is_below(path: str, prefix: str | None) -> bool:
    """Return whether a path is at or below a prefix; both may leave out the service's root."""
    if prefix is None:
        return True
    prefix = _without_root("/" + prefix.strip("/"))
    path = _without_root(path)
    return prefix == "/" or path == prefix or path.startswith(prefix + "/")


def is_control(path: str) -> bool:
    """Return whether a path is that of a control route."""
    return path == CONTROL or path.startswith(CONTROL + "/")


def _without_root(path: str) -> str:
    if path == ROOT or path.startswith(ROOT + "/"):
        return path.removeprefix(ROOT) or "/"
    return path
