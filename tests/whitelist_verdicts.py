"""What becomes of a forged envelope, and whether what is reported of it is true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from whitelist_forge import fingerprint, hash_of, pem

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.verification.verifier import VerificationPins, VerifiedAddress, Verifier

SUPERADMINS = (pem("admin1"), pem("admin2"))
PINS = VerificationPins(SUPERADMINS, 2)
LEGACY = VerificationPins(SUPERADMINS, 2, allow_legacy_signatures=True)
MAINNET = VerificationPins(SUPERADMINS, 2, networks=["mainnet"])

#: Maximum length of what is said about a row, however long the row is.
MAX_MESSAGE = 500


def plain(value: Any) -> Any:
    """Return what is reported as JSON data."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if hasattr(value, "items") else value


def accept(envelope: Any, pins: VerificationPins = PINS) -> VerifiedAddress:
    """Verify an envelope that is to be accepted, and return what is proved."""
    return Verifier(pins).verify(envelope)


def refuse(envelope: Any, pins: VerificationPins = PINS) -> str:
    """Verify an envelope that is to be refused, and return what is said about it."""
    return refused(lambda: Verifier(pins).verify(envelope))


def refused(call: Callable[[], object]) -> str:
    """Call what is to refuse, and return what it says."""
    with pytest.raises(CustodyVerificationError) as caught:
        call()
    message = str(caught.value)
    assert not caught.value.retryable
    assert 0 < len(message) <= MAX_MESSAGE
    assert message.isprintable()
    return message


def signers(result: VerifiedAddress) -> set[str]:
    """Return the names of the users whose signatures counted."""
    return {user.partition("@")[0] for user in result.user_ids}


@contextmanager
def bounded(seconds: float = 6.0) -> Iterator[None]:
    """Fail if what is inside takes more processor time of this thread than that: generous, as others are at work."""
    start = time.thread_time()
    yield
    assert time.thread_time() - start < seconds


Path = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Facts:
    """
    What rules really say, and who really signed them.

    :param superadmins: names whose keys have signed them.
    :param groups: the names in each group.
    :param paths: by currency, network and wallet's path (None: the rule's own), the paths that suffice.
    """

    superadmins: frozenset[str]
    groups: dict[str, frozenset[str]]
    paths: dict[tuple[str, str, str | None], tuple[Path, ...]]


@dataclass
class Ledger:
    """
    What people really did, against which reports are checked.

    :param rules: by the hash of their bytes.
    :param texts: the texts that users signed, by hash.
    :param signed: the hashes that each user has signed, by name.
    """

    rules: dict[str, Facts] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    signed: dict[str, set[str]] = field(default_factory=dict)

    def sign(self, text: str, *names: str) -> None:
        """Note that users have signed a text."""
        self.texts[hash_of(text)] = text
        for name in names:
            self.signed.setdefault(name, set()).add(hash_of(text))

    def check(self, result: VerifiedAddress, pins: VerificationPins) -> None:
        """Check that all which is reported is what people did."""
        facts = self.rules[result.rules.sha256]
        real = {fingerprint(name) for name in facts.superadmins} & set(pins.fingerprints)
        assert len(set(result.rules.signed_by)) == len(result.rules.signed_by) >= pins.superadmin_minimum
        assert set(result.rules.signed_by) <= real

        content = json.loads(self.texts[result.hash])
        assert plain(result.fields) == content
        assert result.legacy <= pins.allow_legacy_signatures
        assert bool(result.omitted) <= result.legacy

        assert result.applied
        for applied in result.applied:
            paths = facts.paths[applied.currency, applied.network, applied.wallet_path]
            assert tuple((group.group_id, group.minimum) for group in applied.path) in paths
            has_own = any(currency == content["currency"] for currency, _, _ in facts.paths)
            assert applied.currency == (content["currency"] if has_own else "")
            wallets, addresses = content.get("linkedWallets", []), content["linkedInternalAddresses"]
            if applied.wallet_path is not None:
                assert ([wallet["path"] for wallet in wallets], addresses) == ([applied.wallet_path], [])
            elif len(wallets) == 1 and not addresses:
                assert (applied.currency, applied.network, wallets[0].get("path")) not in facts.paths
            for group in applied.path:
                names = {user.partition("@")[0] for user in group.user_ids}
                assert len(names) == len(group.user_ids) >= max(1, group.minimum)
                assert names <= facts.groups[group.group_id]
                assert all(result.hash in self.signed.get(name, ()) for name in names)
        json.dumps(result.to_json())
