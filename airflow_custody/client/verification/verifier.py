"""
Is an address whitelisted? Answered by signatures alone, without trusting the service that shows it. No I/O.

Super-administrators, whose public keys are pinned here, sign the rules. The rules name users' keys, groups and
thresholds. Users sign lists of hashes, and a hash covers the text of a request. Everything else that the service shows
of a request is its word: it may contradict what is signed, and then the request is refused, and it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.keys import PublicKey
from airflow_custody.client.verification.pins import VerificationPins
from airflow_custody.client.verification.results import (
    AppliedRule,
    ExaminedSignatures,
    GroupSignatures,
    VerifiedAddress,
    VerifiedRules,
    VerifiedSignatures,
)
from airflow_custody.client.verification.rule_choice import (
    Networks,
    RuleChoiceError,
    choose_rules,
    networks_of,
    paths_of,
)
from airflow_custody.client.verification.rules_container import Path, Rule, RulesContainer, Threshold
from airflow_custody.client.verification.signature_count import (
    EntriesError,
    Entry,
    SignatureCache,
    SignatureCount,
    read_entries,
)
from airflow_custody.client.verification.signed_rules import RefusalError, RulesVerifier
from airflow_custody.client.verification.signed_text import SignedText, SignedTextError, legacy_forms, read_signed_text

__all__ = [
    "AppliedRule",
    "ExaminedSignatures",
    "GroupSignatures",
    "VerificationPins",
    "VerifiedAddress",
    "VerifiedRules",
    "VerifiedSignatures",
    "Verifier",
    "verify_envelope",
]

# Of a request that several rules are for, each with several paths.
_MAX_PATHS = 20


# The keys of an envelope's own rules, and these with the one that names them.
_OWN_RULES = ("rulesContainer", "rulesSignatures")
_RULES = (*_OWN_RULES, "rulesContainerHash")


class Verifier:
    """
    Verifies envelopes against pins, and remembers what it has verified. One may be used by several threads.

    Rules are remembered by the hash of their bytes, and signatures by key, message and bytes, so that none is verified
    twice. Needs the extra ``signing``.

    :param pins: what is trusted.
    :param rules_in_force: the rules in force, as ``GET /rules`` shows them, for pending requests that are shown without
        rules. Default None: such a request is refused, unless nobody has signed it.
    """

    def __init__(self, pins: VerificationPins, *, rules_in_force: Mapping[str, Any] | None = None) -> None:
        self.pins = pins
        #: The rules in force, for pending requests that are shown without rules.
        self.rules_in_force = rules_in_force
        self._signatures = SignatureCache()
        self._rules = RulesVerifier(pins, self._signatures)

    def verify(self, envelope: Mapping[str, Any]) -> VerifiedAddress:
        """
        Return what the signatures of an envelope prove.

        :param envelope: the envelope as it came, a dict.
        :raises CustodyVerificationError: if they do not prove that it is whitelisted; the message says which step
            failed, and why.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        with _RefusalsOf(envelope):
            text, received = _read_text(envelope)
            signed = self._rules.of(envelope)
            rules = self._choose(envelope, received, signed.container)
            entries = [each for each in _read_entries(envelope) if isinstance(each, Entry)]
            counts = []
            for form in self._forms(text, received):
                count = SignatureCount(form.hash, entries, signed.container, self._signatures)
                if applied := _apply(count, rules, form):
                    return VerifiedAddress(form.fields, form.legacy, form.hash, signed.rules, applied, form.omitted)
                counts.append(count)
            raise self._too_few(text, received, counts, rules, entries)

    def verify_signatures(
        self, envelope: Mapping[str, Any], rules: Mapping[str, Any] | None = None
    ) -> VerifiedSignatures:
        """
        Return which signatures a request has that may be pending: all that it has must be valid.

        :param envelope: the envelope as it came, a dict.
        :param rules: the rules in force, as ``GET /rules`` shows them, for an envelope without rules of its own. They
            are verified as any. Default None: it is refused, unless it has no signatures either.
        :raises CustodyVerificationError: if the text does not have its hash, the rules are not signed as pinned, no
            rule applies, or a signature that is there is not that of a user in the rules over this text.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        with _RefusalsOf(envelope):
            text, received = _read_text(envelope)
            entries = _read_entries(envelope)
            if rules is None and (entries or envelope.get("rulesContainerHash")):
                rules = self.rules_in_force
            if not entries and rules is None and not any(map(envelope.get, _RULES)):
                self._check_chain(envelope, received)
                return VerifiedSignatures(received.hash, None)
            has_own = rules is None or any(map(envelope.get, _OWN_RULES))
            signed = self._rules.of(envelope) if has_own else self._rules.in_force(rules)
            self._choose(envelope, received, signed.container)
            forms = [*self._forms(text, received)]
            for number, entry in enumerate(entries, 1):
                if isinstance(entry, str):
                    raise RefusalError(
                        f"its signature {number} of {len(entries)} cannot be used: {entry}", code="not-verified"
                    )
                if why := self._why_invalid(entry, forms, signed.container):
                    raise RefusalError(
                        f"its signature {number} of {len(entries)} is not valid: {why}", code="not-verified"
                    )
            # Who has the key of another cannot be told from it: the names of users are not signed.
            users: dict[PublicKey | None, str] = {}
            for entry in entries:
                if isinstance(entry, Entry):
                    users.setdefault(signed.container.key_of(entry.user_id), entry.user_id)
            return VerifiedSignatures(received.hash, signed.rules, tuple(users.values()))

    def examine(self, envelope: Mapping[str, Any], rules: Mapping[str, Any] | None = None) -> ExaminedSignatures:
        """
        Return which signatures of a request are valid, and how many of its groups' there are: for people to see.

        :param envelope: the envelope as it came, a dict.
        :param rules: as for :meth:`verify_signatures`.
        :raises CustodyVerificationError: if the text does not have its hash, the rules are not signed as pinned, or no
            rule applies.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        with _RefusalsOf(envelope):
            text, received = _read_text(envelope)
            entries = _read_entries(envelope)
            has_own = bool(envelope.get("rulesContainer") or envelope.get("rulesSignatures"))
            if not entries and not has_own and not envelope.get("rulesContainerHash") and rules is None:
                self._check_chain(envelope, received)
                return ExaminedSignatures(None)
            signed = self._rules.of(envelope) if has_own or rules is None else self._rules.in_force(rules)
            chosen = self._choose(envelope, received, signed.container)
            forms = [*self._forms(text, received)]
            faults = [e if isinstance(e, str) else self._why_invalid(e, forms, signed.container) for e in entries]
            usable = [each for each in entries if isinstance(each, Entry)]
            counts = [(form, SignatureCount(form.hash, usable, signed.container, self._signatures)) for form in forms]
            form, count = next((each for each in counts if each[1].has_entries), counts[0])
            paths = _join([paths_of(rule, form)[0] for rule in chosen])
            return ExaminedSignatures(signed.rules, tuple(map(count.count, paths)), tuple(faults))

    def verify_rules(self, rules: Mapping[str, Any]) -> VerifiedRules:
        """
        Return what is proved of rules as ``GET /rules`` shows them.

        :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
        :raises CustodyVerificationError: if they are not signed as pinned, or cannot be decoded.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        try:
            if not isinstance(rules, Mapping):
                raise RefusalError("they are no JSON object")
            return self._rules.listed(rules).rules
        except RefusalError as error:
            why, advice, code = str(error), error.advice, error.code
        raise CustodyVerificationError(f"the service's rules are not verified: {why}", advice=advice, code=code)

    # --- the rule ----------------------------------------------------------------------------------------------

    def _check_chain(self, envelope: Mapping[str, Any], text: SignedText) -> Networks:
        """Return the networks that the address may be on, if the envelope agrees with the text."""
        chain, network = envelope.get("blockchain"), envelope.get("network")
        if chain != text.fields["currency"]:
            raise RefusalError(
                f"its text is for the chain {_quote(text.fields['currency'])}, and the service shows {_quote(chain)}",
                code="request-differs",
            )
        if network is not None and not isinstance(network, str):
            raise RefusalError("its network is not a text")
        try:
            return networks_of(text, network, self.pins.networks)
        except RuleChoiceError as error:
            raise RefusalError(str(error), error.advice, "not-verified") from None

    def _choose(self, envelope: Mapping[str, Any], text: SignedText, container: RulesContainer) -> tuple[Rule, ...]:
        networks = self._check_chain(envelope, text)
        try:
            return choose_rules(container, text.fields["currency"], networks)
        except RuleChoiceError as error:
            raise RefusalError(str(error), error.advice, "not-verified") from None

    # --- signatures --------------------------------------------------------------------------------------------

    def _forms(self, text: str, received: SignedText) -> Iterator[SignedText]:
        yield received
        if self.pins.allow_legacy_signatures:
            yield from legacy_forms(text, received)

    def _why_invalid(self, entry: Entry, forms: Sequence[SignedText], container: RulesContainer) -> str:
        who = _quote(entry.user_id)
        if not any(form.hash in entry.hashes for form in forms):
            return "it covers another text than the current one"
        if entry.user_id not in container.users:
            return f"{who} is no user of its rules"
        key = container.key_of(entry.user_id)
        if key is None:
            return f"the key of {who} in its rules cannot be used"
        digest = entry.digest
        if digest is None or not self._signatures.verifies(key, entry.signature, digest):
            return f"it is not one of {who}"
        return ""

    def _too_few(
        self,
        text: str,
        received: SignedText,
        counts: Sequence[SignatureCount],
        rules: Sequence[Rule],
        entries: Sequence[Entry],
    ) -> RefusalError:
        count = next((each for each in counts if each.has_entries), None)
        if count is None:
            advice = None
            hashes = {form.hash for form in legacy_forms(text, received)}
            if any(hash_ in entry.hashes for hash_ in hashes for entry in entries):
                advice = "A signature names the hash of a legacy form of it: see 'allow_legacy_signatures'."
            return RefusalError("no signature covers its text", advice, "not-verified")
        missing = next(filter(None, (count.describe(paths_of(rule, received)[0]) for rule in rules)))
        advice = None
        if len(rules) > 1 and self.pins.networks is None:
            advice = "Nothing that is signed names its network, so each that it may be on counts: pin 'networks'."
        return RefusalError(f"it has too few valid signatures: {missing}", advice, "not-verified")


def verify_envelope(envelope: Mapping[str, Any], pins: VerificationPins) -> VerifiedAddress:
    """
    Return what the signatures of one envelope prove. For many, make one :class:`Verifier`.

    :param envelope: the envelope as it came, a dict.
    :param pins: what is trusted.
    :raises CustodyVerificationError: as :meth:`Verifier.verify`.
    """
    return Verifier(pins).verify(envelope)


class _RefusalsOf:
    """Names the row in a refusal, so that it can be found: no signature covers its id."""

    def __init__(self, envelope: Mapping[str, Any]) -> None:
        self._envelope = envelope

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RefusalError):
            id_ = self._envelope.get("id") if isinstance(self._envelope, Mapping) else None
            name = sanitize(id_, 40) if isinstance(id_, str) else "without an id"
            raise CustodyVerificationError(
                f"whitelisting request {name} is not verified: {error}", advice=error.advice, code=error.code
            ) from None


def _read_text(envelope: Mapping[str, Any]) -> tuple[str, SignedText]:
    if not isinstance(envelope, Mapping):
        raise RefusalError("it is no JSON object")
    metadata = envelope.get("metadata")
    found = metadata if isinstance(metadata, Mapping) else {}
    text, hash_ = found.get("payloadAsString"), found.get("hash")
    if not isinstance(text, str) or not isinstance(hash_, str) or not text or not hash_:
        raise RefusalError("its payload or its hash is missing", code="request-differs")
    try:
        return text, read_signed_text(text, hash_)
    except SignedTextError as error:
        raise RefusalError(f"its payload {error}", code="request-differs") from None


def _read_entries(envelope: Mapping[str, Any]) -> list[Entry | str]:
    try:
        return read_entries(envelope)
    except EntriesError as error:
        raise RefusalError(str(error), code="not-verified") from None


def _apply(count: SignatureCount, rules: Sequence[Rule], text: SignedText) -> tuple[AppliedRule, ...]:
    """Return how the rules are met; empty: one of them is not."""
    applied = []
    for rule in rules:
        paths, wallet_path = paths_of(rule, text)
        path = count.complete(paths)
        if path is None:
            return ()
        applied.append(AppliedRule(rule.currency, rule.network, wallet_path, path))
    return tuple(applied)


def _join(rules: Sequence[Sequence[Path]]) -> list[Path]:
    """Return the paths that meet all rules at once: of many, the first."""
    found = []
    for paths in islice(product(*rules), _MAX_PATHS):
        minimums: dict[str, int] = {}
        for threshold in chain.from_iterable(paths):
            minimums[threshold.group_id] = max(threshold.minimum, minimums.get(threshold.group_id, 0))
        found.append(tuple(Threshold(group, minimum) for group, minimum in minimums.items()))
    return found


def _quote(text: object) -> str:
    return repr(sanitize(text, 60)) if isinstance(text, str) else "none"
