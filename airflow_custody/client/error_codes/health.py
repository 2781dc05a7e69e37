"""Error codes: health."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

GROUP = Group(
    "Health",
    (
        Entry(
            "not-healthy",
            "The service is not healthy",
            "the service is not healthy (1 of 9 checks unhealthy): hsm / connection: its status is 'error'",
            "The service responded, and at least one check is not healthy by the criteria of the task: its status, its "
            "age, or a result that is missing.",
            "Look at the checks in the log of the task, or with 'custody health'. If a check does not matter to this "
            "DAG, choose groups, components or checks.",
            ("CustodyUnhealthyError",),
            True,
        ),
        Entry(
            "health-name-unknown",
            "A group, component or check does not exist",
            "the service is not healthy: no group named 'hsn' exists; the groups are 'database', 'hsm'. Correct "
            "'groups': names are compared exactly.",
            "A name in groups, components, checks or require_results is not one that the service lists. It is probably "
            "mistyped. A sensor polls once more, then fails. An operator is tried again, because a service that is "
            "starting may not list all.",
            "Correct the name. 'custody health' lists the names as the service writes them.",
            ("CustodyUnhealthyError",),
            None,
        ),
    ),
)
