"""The parameters that would create a given request again."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.whitelist_plans import listed, snapshot_of

from airflow_custody.client.whitelist.request import to_whitelist_request


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"visibilityGroupID": "", "network": None}, {}),
        ({"visibilityGroupID": "g1"}, {"visibility_group_id": "g1"}),
        ({"network": "mainnet"}, {"network": "mainnet"}),
    ],
    ids=str,
)
def test_group_and_network_come_from_the_envelope(wire: dict[str, Any], expected: dict[str, str]) -> None:
    request = to_whitelist_request(snapshot_of([listed(wire=wire)])["3711"])
    given = request.model_dump(exclude_none=True)
    assert {name: given[name] for name in ("visibility_group_id", "network") if name in given} == expected
