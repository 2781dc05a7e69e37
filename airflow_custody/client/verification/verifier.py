"""
Verifies by signatures alone that an address is whitelisted.

The service is not trusted. There is no I/O.

Super-administrators, whose public keys are pinned here, sign the rules. The rules name users' keys, groups and
thresholds. Users sign lists of hashes, and a hash covers the text of a request. Everything else in a request is
unproved, and decides nothing. If such unproved data contradict the signed text, the request is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice, product
from typing import Any

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.text import ascii_lower, sanitize
from airflow_custody.client.verification.keys import PublicKey
from airflow_custody.client.verification.pins import VerificationPins
from airflow_custody.client.verification.results import (
    AppliedRule,
    RefusalError,
    RequestSignatures,
    VerifiedAddress,
    VerifiedRules,
)
from airflow_custody.client.verification.rule_choice import choose_rules, network_of, paths_of
from airflow_custody.client.verification.rules_container import Path, Rule, RulesContainer, Threshold
from airflow_custody.client.verification.signature_count import Entry, SignatureCount, read_entries, why_invalid
from airflow_custody.client.verification.signed_rules import (
    COMPARE_PINS,
    SignedRules,
    enclosed_rules,
    listed_rules,
    shows_rules,
    verify_rules,
)
from airflow_custody.client.verification.signed_text import SignedText, legacy_forms, read_signed_text

__all__ = ["RequestSignatures", "VerificationPins", "VerifiedAddress", "VerifiedRules", "Verifier", "verify_envelope"]

#: Maximum numbers of verified signatures and of verified rules in the cache.
MAX_SIGNATURES = 65_536
MAX_CONTAINERS = 64
# Maximum number of combined paths. If several rules apply to a request, a combination has one path of each rule.
_MAX_PATHS = 20


class Verifier:
    """
    A verifier of envelopes against pins, with a cache.

    Several threads may share a verifier.

    Rules are cached by their bytes and signatures, and signatures by key, message and bytes, so that no signature is
    verified twice.

    :param pins: the trusted keys and settings.
    :param rules_in_force: the rules in force, as ``GET /rules`` returns them, for pending requests without rules. They
        are verified like any rules. Default None: a request without rules is refused if it has signatures.
    """

    def __init__(self, pins: VerificationPins, *, rules_in_force: Mapping[str, Any] | None = None) -> None:
        self.pins = pins
        #: The rules in force; None: they are unknown or unusable.
        self.rules_in_force = rules_in_force
        self._verifies = lru_cache(MAX_SIGNATURES)(PublicKey.verifies_digest)
        # Errors are not cached, so failing envelopes do not push valid rules out of the cache.
        self._signed_rules = lru_cache(MAX_CONTAINERS)(partial(verify_rules, pins, self._verifies))

    def verify(self, envelope: Mapping[str, Any]) -> VerifiedAddress:
        """
        Verify an envelope, and return the proved address.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if the signatures do not prove that the address is whitelisted. The message
            gives the failed step and the reason.
        """
        with _name_subject(_name_of(envelope)):
            text, received = _read_text(envelope)
            signed = self._own_rules(envelope)
            rules = self._choose(envelope, received, signed.container)
            entries = read_entries(envelope)
            counts = []
            for form, hashes in self._forms(text, received):
                count = SignatureCount(hashes, entries, signed.container, self._verifies)
                if applied := _apply(count, rules, form):
                    return VerifiedAddress(form.fields, form.legacy, form.hash, signed.rules, applied, form.omitted)
                counts.append(count)
            raise self._too_few(text, received, counts, rules, entries)

    def verify_signatures(self, envelope: Mapping[str, Any]) -> RequestSignatures:
        """
        Return the valid signatures of a request, pending or not.

        An invalid signature is an error.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: like :meth:`examine`, and if a signature was not made by a user in the rules
            over this text.
        """
        found = self.examine(envelope)
        with _name_subject(_name_of(envelope)):
            for number, fault in enumerate(found.faults, 1):
                if fault:
                    raise RefusalError(f"its signature {number} of {len(found.faults)} is not valid: {fault}")
        return found

    def examine(self, envelope: Mapping[str, Any]) -> RequestSignatures:
        """
        Return the signatures of a request, valid or not.

        The result also lists the valid signers of each group.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if the text does not match its hash, too few pinned keys have signed the
            rules, or no rule applies.
        """
        with _name_subject(_name_of(envelope)):
            text, received = _read_text(envelope)
            entries = read_entries(envelope)
            if not shows_rules(envelope) and not self.needs_rules_in_force(envelope):
                self._network(envelope, received)
                return RequestSignatures(received.hash, None)
            signed = self._rules_of(envelope)
            chosen = self._choose(envelope, received, signed.container)
            forms = [*self._forms(text, received)]
            accepted = [form.hash for form, _ in forms]
            checked = [(each, why_invalid(each, accepted, signed.container, self._verifies)) for each in entries]
            valid = [entry for entry, fault in checked if not fault]
            # Users with the same key count once: they cannot be distinguished, because their names are not signed.
            users: dict[PublicKey | None, str] = {}
            for entry in valid:
                users.setdefault(signed.container.key_of(entry.user_id), entry.user_id)
            counts = [(form, SignatureCount(found, valid, signed.container, self._verifies)) for form, found in forms]
            form, count = max(counts, key=lambda each: len(each[1].entries))
            paths = tuple(map(count.count, _join([paths_of(rule, form)[0] for rule in chosen])))
            faults = tuple(fault for _, fault in checked)
            return RequestSignatures(received.hash, signed.rules, tuple(users.values()), paths, faults)

    def users_of(self, envelope: Mapping[str, Any]) -> Mapping[str, PublicKey | None]:
        """
        Return the users in a request's rules, with their keys.

        The request may be pending. None stands for a key that cannot be used.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if too few pinned keys have signed the rules.
        """
        with _name_subject(_name_of(envelope)):
            container = self._rules_of(envelope).container
            return {each: container.key_of(each) for each in container.users}

    def verify_rules(self, rules: Mapping[str, Any]) -> VerifiedRules:
        """
        Verify rules from ``GET /rules``.

        :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
        :raises CustodyVerificationError: if too few pinned keys have signed the rules, or the rules cannot be decoded.
        """
        with _name_subject("the service's rules are"):
            return self._signed_rules(*listed_rules(rules)).rules

    def needs_rules_in_force(self, envelope: Mapping[str, Any]) -> bool:
        """
        Tell whether a pending request needs the rules in force.

        The rules in force are needed if the request has signatures or refers to rules, but carries no rules.

        :param envelope: the envelope as received.
        """
        if shows_rules(envelope):
            return False
        address = envelope.get("signedAddress")
        has_signatures = isinstance(address, Mapping) and bool(address.get("signatures"))
        return has_signatures or bool(envelope.get("rulesContainerHash"))

    # --- rules -------------------------------------------------------------------------------------------------

    def _rules_of(self, envelope: Mapping[str, Any]) -> SignedRules:
        in_force = None if shows_rules(envelope) else self._rules_in_force()
        return in_force or self._own_rules(envelope)

    def _own_rules(self, envelope: Mapping[str, Any]) -> SignedRules:
        found = enclosed_rules(envelope)
        try:
            return self._signed_rules(*found)
        except RefusalError as error:
            raise RefusalError(str(error), error.advice or COMPARE_PINS) from None

    def _rules_in_force(self) -> SignedRules | None:
        if self.rules_in_force is None:
            return None
        try:
            return self._signed_rules(*listed_rules(self.rules_in_force))
        except RefusalError as error:
            raise RefusalError(
                f"the service returns it without rules, and the rules in force cannot be used: {error}",
                error.advice or COMPARE_PINS,
            ) from None

    def _network(self, envelope: Mapping[str, Any], text: SignedText) -> str:
        """Return the network, if envelope and text agree without regard to case."""
        shown, network = envelope.get("blockchain"), envelope.get("network")
        if not isinstance(shown, str) or ascii_lower(shown) != ascii_lower(text.fields["currency"]):
            raise RefusalError(
                f"its text is for the chain {_quote(text.fields['currency'])}, but the service reports {_quote(shown)}",
                code="request-differs",
            )
        if network is not None and not isinstance(network, str):
            raise RefusalError("its network is not text")
        return network_of(text, network, self.pins.networks)

    def _choose(self, envelope: Mapping[str, Any], text: SignedText, container: RulesContainer) -> tuple[Rule, ...]:
        return choose_rules(container, text, self._network(envelope, text), self.pins.networks)

    # --- signatures --------------------------------------------------------------------------------------------

    def _forms(self, text: str, received: SignedText) -> Iterator[tuple[SignedText, list[str]]]:
        """
        Return the accepted forms of a text, each with the hashes that cover all of its fields.

        A request that is pending during an upgrade of the service may have signatures over several forms. A signature
        over a form with more fields also covers a form with fewer.
        """
        yield received, [received.hash]
        if self.pins.allow_legacy_signatures:
            forms = [received, *legacy_forms(text, received)]
            for form in forms[1:]:
                yield form, [each.hash for each in forms if {*each.omitted} <= {*form.omitted}]

    def _too_few(
        self,
        text: str,
        received: SignedText,
        counts: Sequence[SignatureCount],
        rules: Sequence[Rule],
        entries: Sequence[Entry],
    ) -> RefusalError:
        count = max(counts, key=lambda each: len(each.entries))
        advice = None
        if not self.pins.allow_legacy_signatures and any(
            form.hash in entry.hashes for form in legacy_forms(text, received) for entry in entries
        ):
            advice = "A signature covers a legacy form of its text. See 'allow_legacy_signatures'."
        if not count.entries:
            return RefusalError("no signature covers its text", advice)
        paths = [paths_of(rule, received)[0] for rule in rules]
        missing = next(count.describe(each) for each in paths if count.complete(each) is None)
        if advice is None and len(rules) > 1 and self.pins.networks is None:
            advice = (
                "Its signed text does not name its network, so the rules of every possible network must be met. To "
                "accept fewer networks, pin 'networks'."
            )
        return RefusalError(f"it has too few valid signatures: {missing}", advice)


def verify_envelope(envelope: Mapping[str, Any], pins: VerificationPins) -> VerifiedAddress:
    """
    Verify one envelope, and return the proved address.

    For many envelopes, make one :class:`Verifier`.

    :param envelope: the envelope as received, a dict.
    :param pins: the trusted keys and settings.
    :raises CustodyVerificationError: like :meth:`Verifier.verify`.
    """
    return Verifier(pins).verify(envelope)


@contextmanager
def _name_subject(name: str) -> Iterator[None]:
    """Turn a :class:`RefusalError` into the error for users, which names its subject."""
    try:
        yield
    except RefusalError as error:
        message = f"{name} not verified: {error}"
        raise CustodyVerificationError(message, why=str(error), advice=error.advice, code=error.code) from None


def _name_of(envelope: Mapping[str, Any]) -> str:
    """Name a request by its id, which no signature covers."""
    id_ = envelope.get("id") if isinstance(envelope, Mapping) else None
    return f"whitelisting request {sanitize(id_, 40) if isinstance(id_, str) else 'without an id'} is"


def _read_text(envelope: Mapping[str, Any]) -> tuple[str, SignedText]:
    if not isinstance(envelope, Mapping):
        raise RefusalError("it is not a JSON object")
    metadata = envelope.get("metadata")
    found = metadata if isinstance(metadata, Mapping) else {}
    text, hash_ = found.get("payloadAsString"), found.get("hash")
    if not isinstance(text, str) or not isinstance(hash_, str) or not text or not hash_:
        raise RefusalError("its payload or its hash is missing", code="request-differs")
    try:
        return text, read_signed_text(text, hash_)
    except RefusalError as error:
        raise RefusalError(f"its payload {error}", code="request-differs") from None


def _apply(count: SignatureCount, rules: Sequence[Rule], text: SignedText) -> tuple[AppliedRule, ...]:
    """
    Return the applied parts of the rules.

    Empty if one of the rules is not met.
    """
    applied = []
    for rule in rules:
        paths, wallet_path = paths_of(rule, text)
        path = count.complete(paths)
        if path is None:
            return ()
        applied.append(AppliedRule(rule.currency, rule.network, wallet_path, path))
    return tuple(applied)


def _join(rules: Sequence[Sequence[Path]]) -> list[Path]:
    """
    Return the paths that meet all rules at once.

    If there are many, only the first ones are returned.
    """
    found = []
    for paths in islice(product(*rules), _MAX_PATHS):
        minimums: dict[str, int] = {}
        for threshold in chain.from_iterable(paths):
            minimums[threshold.group_id] = max(threshold.minimum, minimums.get(threshold.group_id, threshold.minimum))
        found.append(tuple(Threshold(group, minimum) for group, minimum in minimums.items()))
    return found


def _quote(text: object) -> str:
    return repr(sanitize(text, 60)) if isinstance(text, str) else "none"
