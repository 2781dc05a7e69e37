"""The responses of the control routes."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response


def control_result(result: Any = None) -> Response:
    """Return the response of a control route."""
    # ASCII, because what a test sent may contain half a surrogate pair.
    return Response(json.dumps({"result": result}), media_type="application/json")
