"""The protocol buffers that the sandbox writes, against the project's own worked example of the published form."""

from __future__ import annotations

import hashlib

from airflow_custody.sandbox.rules.encoder import encode_rules_container

# How every P-256 public key begins.
PREFIX = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE"
KEYS = {
    "alice": "OeOjSzjch/6w7dPDuOMwG0uPnFOHLx9FDvfpdHTwBaeT2a//URIMweW9bqVaZ7bLB3/AS3MJvQwpcmG8593Sjw==",
    "bob": "6Yj3uuh3eVQTpTGPEAS/4rG6byO3pmYpSwH1nqnvFpbKKNUTuz4GzGfYMz/e22h6MC03IZ41d+aVMhA1pS42xg==",
    "carol": "kLLrwkiK/PTYQ9DYRvuwCSYKHGXiFklna1f+3VDolHGTmmJAkdOPaB6/iejmnLCzeuXuAaOwGiX24hqvqy0dyQ==",
}
USERS = [
    {
        "id": f"{name}@example.test",
        "publicKey": f"-----BEGIN PUBLIC KEY-----\n{key[:64]}\n{key[64:]}\n-----END PUBLIC KEY-----\n",
        "roles": ["REQUESTAPPROVER", "WhitelistedAddressApprover", "Admin"],
    }
    for name, key in ((name, PREFIX + rest) for name, rest in KEYS.items())
]
OPS_2, OPS_1, BOARD_1 = (
    {"externalGroupID": group, "minimumSignatures": number} for group, number in (("ops", 2), ("ops", 1), ("board", 1))
)
RULES = [
    {
        "currency": "ETH",
        "network": "",
        "parallel": [{"sequential": [OPS_2]}, {"sequential": [BOARD_1]}],
        "lines": [{"path": "demo/7", "parallel": [{"sequential": [OPS_1]}]}],
    },
    {"currency": "", "network": "", "parallel": [{"sequential": [OPS_1, BOARD_1]}], "lines": []},
]
GROUPS = {"ops": ["alice@example.test", "bob@example.test"], "board": ["carol@example.test"]}


def test_a_container_has_the_bytes_of_the_worked_example() -> None:
    container = encode_rules_container(USERS, GROUPS, RULES, 1767225600)
    assert len(container) == 784
    assert hashlib.sha256(container).hexdigest() == "539f19e6809306318637beefcebad7aa99037c7fee017842900beedd76d0dccc"
