"""
Compares the protocol buffers of the sandbox with a worked example.

The example is the project's own, and follows the published form.
"""

from __future__ import annotations

from support.keys.envelopes import DEFAULT_RULE, TIMESTAMP, container, pem, user_id

from airflow_custody.sandbox.rules.encoder import encode_rules_container

USERS = [
    {
        "id": user_id(name),
        "publicKey": pem(name),
        "roles": ["REQUESTAPPROVER", "WhitelistedAddressApprover", "Admin"],
    }
    for name in ("alice", "bob", "carol")
]
GROUPS = {"ops": [user_id("alice"), user_id("bob")], "board": [user_id("carol")]}
PARALLEL = [
    {
        "sequential": [
            {"externalGroupID": "ops", "minimumSignatures": 1},
            {"externalGroupID": "board", "minimumSignatures": 1},
        ]
    }
]


def test_a_container_has_the_bytes_of_the_worked_example() -> None:
    assert encode_rules_container(USERS, GROUPS, PARALLEL, TIMESTAMP) == container(rules=[DEFAULT_RULE])
