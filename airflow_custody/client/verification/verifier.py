"""
Verify by signatures alone that an address is whitelisted, without trusting the service.

Super-administrators, whose public keys are pinned in the local configuration, sign the rules. The rules name users'
keys, groups and thresholds. Users sign lists of hashes, and each hash covers the text of a request. Everything else in
a request is unproved, so it cannot make the verification succeed. If unproved data contradict the signed text, the
request is refused. Nothing here reads from the service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice, product
from typing import Any

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.text import ascii_lower, sanitize
from airflow_custody.client.verification.keys import PublicKey, UserSignature, Verifies, read_user_signatures
from airflow_custody.client.verification.pins import VerificationPins
from airflow_custody.client.verification.results import (
    AppliedRule,
    GroupSignatures,
    RefusalError,
    RequestSignatures,
    VerifiedAddress,
    VerifiedRules,
)
from airflow_custody.client.verification.rules_container import Path, Rule, RulesContainer, Threshold, choose_rules
from airflow_custody.client.verification.signed_rules import (
    COMPARE_PINS,
    SignedRules,
    enclosed_rules,
    listed_rules,
    verify_rules,
)
from airflow_custody.client.verification.signed_text import SignedText, legacy_forms, read_signed_text

__all__ = ["RequestSignatures", "VerificationPins", "VerifiedAddress", "VerifiedRules", "Verifier", "verify_envelope"]

#: Maximum numbers of verified signatures and of verified rules in the cache.
MAX_SIGNATURES = 65_536
MAX_CONTAINERS = 64
# Maximum number of combined paths. If several rules apply to a request, a combined path has one path from each rule.
_MAX_PATHS = 20
_MAX_PATHS_SHOWN = 3


class Verifier:
    """
    A verifier of envelopes against pins. Several threads may share it.

    So that no signature is verified twice, results are cached: for rules, by their bytes and signatures; for a
    signature, by key, message and bytes.

    :param pins: the trusted keys and settings.
    :param rules_in_force: the rules in force, in the form that ``GET /rules`` returns, for pending requests without
        rules. They are verified like any rules. Default None: a request without rules is refused if it has signatures.
    """

    def __init__(self, pins: VerificationPins, *, rules_in_force: Mapping[str, object] | None = None) -> None:
        self.pins = pins
        #: The rules in force; None: they are unknown or unusable.
        self.rules_in_force = rules_in_force
        # Whether even unsigned requests need the rules in force, because they are about to be signed.
        self._even_unsigned = False
        self._verifies = lru_cache(MAX_SIGNATURES)(PublicKey.verifies_digest)
        # Errors are not cached, so envelopes that fail do not push valid rules out of the cache.
        self._signed_rules = lru_cache(MAX_CONTAINERS)(partial(verify_rules, pins, self._verifies))

    def verify(self, envelope: Mapping[str, object]) -> VerifiedAddress:
        """
        Verify an envelope, and return the proved address.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if the signatures do not prove that the address is whitelisted. The message
            gives the failed step and the reason.
        """
        with _name_subject(envelope):
            text, received = _read_text(envelope)
            signed = self._own_rules(envelope)
            rules = self._choose(envelope, received, signed.container)
            signatures = read_user_signatures(envelope)
            counts = []
            for form, hashes in self._forms(text, received):
                count = SignatureCount(hashes, signatures, signed.container, self._verifies)
                if applied := count.apply(rules, form.wallet_path):
                    return VerifiedAddress(form.fields, form.legacy, form.hash, signed.rules, applied, form.omitted)
                counts.append(count)
            raise self._too_few(text, received, counts, rules, signatures)

    def verify_signatures(self, envelope: Mapping[str, object]) -> RequestSignatures:
        """
        Return the valid signatures of a request, pending or not.

        An invalid signature is an error.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: like :meth:`examine`, and if a signature was not made by a user in the rules
            over this text.
        """
        found = self.examine(envelope)
        with _name_subject(envelope):
            for number, fault in enumerate(found.faults, 1):
                if fault:
                    raise RefusalError(f"its signature {number} of {len(found.faults)} is not valid: {fault}")
        return found

    def examine(self, envelope: Mapping[str, object]) -> RequestSignatures:
        """
        Return the signatures of a request, valid or not.

        The result also lists the valid signers of each group.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if the text does not match its hash, too few pinned keys have signed the
            rules, or no rule applies.
        """
        with _name_subject(envelope):
            text, received = _read_text(envelope)
            signatures = read_user_signatures(envelope)
            if not shows_rules(envelope) and not self.needs_rules_in_force(envelope):
                self._network(envelope, received)
                return RequestSignatures(received.hash, None, fields=received.fields)
            signed = self._rules_of(envelope)
            chosen = self._choose(envelope, received, signed.container)
            forms = [*self._forms(text, received)]
            accepted = [form.hash for form, _ in forms]
            checked = [(each, why_invalid(each, accepted, signed.container, self._verifies)) for each in signatures]
            valid = [signature for signature, fault in checked if not fault]
            # Users with the same key count only once. They cannot be distinguished, because no signature covers a
            # user's name.
            users: dict[PublicKey | None, str] = {}
            for signature in valid:
                users.setdefault(signed.container.users[signature.user_id], signature.user_id)
            counts = [(form, SignatureCount(found, valid, signed.container, self._verifies)) for form, found in forms]
            form, count = max(counts, key=lambda each: each[1].covering)
            paths = tuple(map(count.count, _join([rule.paths_for(form.wallet_path)[0] for rule in chosen])))
            faults = tuple(fault for _, fault in checked)
            return RequestSignatures(received.hash, signed.rules, (*users.values(),), paths, faults, received.fields)

    def users_of(self, envelope: Mapping[str, object]) -> Mapping[str, PublicKey | None]:
        """
        Return the users in the rules of a request, pending or not, with their keys.

        None represents a key that cannot be used.

        :param envelope: the envelope as received, a dict.
        :raises CustodyVerificationError: if too few pinned keys have signed the rules.
        """
        with _name_subject(envelope):
            return self._rules_of(envelope).container.users

    def verify_rules(self, rules: Mapping[str, object]) -> VerifiedRules:
        """
        Verify rules from ``GET /rules``.

        :param rules: ``rulesContainer`` in base64, and ``rulesSignatures``, a list of ``{userId, signature}``.
        :raises CustodyVerificationError: if too few pinned keys have signed the rules, or the rules cannot be decoded.
        """
        with _name_subject(None, "the service's rules are"):
            return self._signed_rules(*listed_rules(rules)).rules

    def needs_rules_in_force(self, envelope: Mapping[str, object]) -> bool:
        """
        Tell whether a pending request needs the rules in force.

        The rules in force are needed if the request has signatures, refers to rules or is about to be signed, but
        carries no rules.

        :param envelope: the envelope as received.
        """
        if shows_rules(envelope):
            return False
        address = envelope.get("signedAddress")
        has_signatures = isinstance(address, Mapping) and bool(address.get("signatures"))
        return self._even_unsigned or has_signatures or bool(envelope.get("rulesContainerHash"))

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

    def _choose(self, envelope: Mapping[str, Any], text: SignedText, container: RulesContainer) -> tuple[Rule, ...]:
        return choose_rules(container, text, self._network(envelope, text), self.pins.networks)

    def _network(self, envelope: Mapping[str, Any], text: SignedText) -> str:
        """
        Return the network of an address; empty if it is unknown.

        This is the network in the signed text, or else the network that the service reports. Chain and network in the
        envelope must be the same as in the text, except for upper and lower case.
        """
        shown, network = envelope.get("blockchain"), envelope.get("network")
        currency, signed = text.fields["currency"], text.fields.get("network") or ""
        if not isinstance(shown, str) or not _is_same_name(currency, shown):
            raise RefusalError(
                f"its text is for the chain {_quote(currency)}, but the service reports {_quote(shown)}",
                code="request-differs",
            )
        if network is not None and not isinstance(network, str):
            raise RefusalError("its network is not text")
        if signed and network and not _is_same_name(signed, network):
            raise RefusalError(
                f"its text is for the network {_quote(signed)}, but the service reports {_quote(network)}"
            )
        accepted, network = self.pins.networks, signed or network or ""
        if accepted is None or network in accepted:
            return network
        if network:
            raise RefusalError(
                f"its network {_quote(network)} is not pinned", "To accept addresses on it, add it to 'networks'."
            )
        raise RefusalError(
            "the service does not report its network",
            "Therefore the address may not be on a pinned network. If the service never reports a network for this "
            "chain, leave out 'networks'. The address then needs the signatures that each rule for its chain requires.",
        )

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
        signatures: Sequence[UserSignature],
    ) -> RefusalError:
        count = max(counts, key=lambda each: each.covering)
        advice = None
        if not self.pins.allow_legacy_signatures and any(
            form.hash in each.hashes for form in legacy_forms(text, received) for each in signatures
        ):
            advice = "A signature covers a legacy form of the text. See 'allow_legacy_signatures'."
        if not count.covering:
            return RefusalError("no signature covers its text", advice)
        paths = [rule.paths_for(received.wallet_path)[0] for rule in rules]
        missing = next(count.describe(each) for each in paths if count.complete(each) is None)
        if advice is None and len(rules) > 1 and self.pins.networks is None:
            advice = (
                "The signed text does not name the network, so the rules of every possible network must be met. To "
                "accept fewer networks, pin 'networks'."
            )
        return RefusalError(f"it has too few valid signatures: {missing}", advice)


def verify_envelope(envelope: Mapping[str, object], pins: VerificationPins) -> VerifiedAddress:
    """
    Verify one envelope, and return the proved address.

    To verify many envelopes, create one :class:`Verifier`, which caches results.

    :param envelope: the envelope as received, a dict.
    :param pins: the trusted keys and settings.
    :raises CustodyVerificationError: like :meth:`Verifier.verify`.
    """
    return Verifier(pins).verify(envelope)


@contextmanager
def _name_subject(envelope: object, subject: str = "") -> Iterator[None]:
    """Turn a :class:`RefusalError` into the error for users, which names the subject (by default, the request)."""
    try:
        yield
    except RefusalError as error:
        id_ = envelope.get("id") if isinstance(envelope, Mapping) else None
        name = f"whitelisting request {sanitize(id_, 40) if isinstance(id_, str) else 'without an id'} is"
        message = f"{subject or name} not verified: {error}"
        raise CustodyVerificationError(message, why=str(error), advice=error.advice, code=error.code) from None


# --- what an envelope contains -----------------------------------------------------------------------------


def shows_rules(envelope: Mapping[str, object]) -> bool:
    """
    Tell whether an envelope carries rules, usable or not.

    :param envelope: the envelope as received.
    """
    return any(map(envelope.get, ("rulesContainer", "rulesSignatures", "rulesFault")))


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


def why_invalid(
    signature: UserSignature, hashes: Collection[str], container: RulesContainer, verifies: Verifies
) -> str:
    """
    Return why a signature is invalid; empty if it is valid.

    A valid signature is made by a user in the rules, over one of the hashes.

    :param signature: the signature.
    :param hashes: the hashes of the text and of its accepted legacy forms.
    :param container: the rules.
    :param verifies: verifies signatures.
    """
    if signature.fault:
        return signature.fault
    if not _covers(signature, hashes):
        return "it does not cover the current text"
    key = container.users.get(signature.user_id)
    if key is not None and signature.digest is not None and verifies(key, signature.signature, signature.digest):
        return ""
    who = repr(sanitize(signature.user_id, 60))
    if signature.user_id not in container.users:
        return f"{who} is not a user in its rules"
    return f"the key of {who} in its rules cannot be used" if key is None else f"it is not a signature of {who}"


def _covers(signature: UserSignature, hashes: Collection[str]) -> bool:
    return any(each in signature.hashes for each in hashes)


class SignatureCount:
    """
    The users who have validly signed a text, in one of its accepted forms.

    :param hashes: the hashes of the accepted forms of the text.
    :param signatures: the request's signatures. Unusable signatures do not count.
    :param container: the rules.
    :param verifies: verifies signatures.
    """

    def __init__(
        self,
        hashes: Collection[str],
        signatures: Sequence[UserSignature],
        container: RulesContainer,
        verifies: Verifies,
    ) -> None:
        covering = [each for each in signatures if not each.fault and _covers(each, hashes)]
        valid = [each.user_id for each in covering if not why_invalid(each, hashes, container, verifies)]
        #: Number of the signatures over one of the hashes, valid or not.
        self.covering = len(covering)
        # The users with valid signatures, with their keys.
        self._signers = {user: container.users[user] for user in valid}
        self._groups = container.groups

    def count(self, path: Path) -> tuple[GroupSignatures, ...]:
        """
        Return the valid signers of each group of a path.

        For each group, at most as many users are returned as its threshold requires.
        """
        found = []
        for threshold in path:
            members = self._groups.get(threshold.group_id, frozenset())
            # Users with the same key count only once. They cannot be distinguished, because no signature covers a
            # user's name.
            by_key: dict[PublicKey | None, str] = {}
            for user, key in self._signers.items():
                if user in members:
                    by_key.setdefault(key, user)
            users = tuple(by_key.values())[: threshold.minimum]
            found.append(GroupSignatures(threshold.group_id, threshold.minimum, users))
        return tuple(found)

    def complete(self, paths: Sequence[Path]) -> tuple[GroupSignatures, ...] | None:
        """
        Return the groups of the first complete path; None if no path is complete.

        A path is never complete if it has no groups, or if one of its groups is unknown, has no users, or has a
        threshold of 0.

        :param paths: the paths; one complete path is enough.
        """
        for path in paths:
            groups = self.count(path)
            if groups and all(1 <= each.minimum <= len(each.user_ids) for each in groups):
                return groups
        return None

    def apply(self, rules: Sequence[Rule], wallet_path: str) -> tuple[AppliedRule, ...]:
        """
        Return the rules with the paths that are complete; empty if one of the rules is not met.

        :param rules: the rules.
        :param wallet_path: the path of the address's only linked wallet; empty: there is no such wallet.
        """
        applied = []
        for rule in rules:
            paths, used_wallet = rule.paths_for(wallet_path)
            path = self.complete(paths)
            if path is None:
                return ()
            applied.append(AppliedRule(rule.currency, rule.network, used_wallet, path))
        return tuple(applied)

    def describe(self, paths: Sequence[Path]) -> str:
        """
        Describe how many signatures exist and how many are needed, for a message.

        :param paths: the paths; none of them is complete.
        """
        shown = [
            " and ".join(
                f"{len(each.user_ids)} of {each.minimum} in the group {sanitize(each.group_id, 30)!r}"
                for each in self.count(path[:_MAX_PATHS_SHOWN])
            )
            for path in paths[:_MAX_PATHS_SHOWN]
        ]
        return sanitize(", or ".join(shown), 200) or "its rule has no path in which each group has a threshold above 0"


def _join(rules: Sequence[Sequence[Path]]) -> list[Path]:
    """
    Return the combined paths that meet all rules at once. If there are many, return only the first ones.
    """
    found = []
    for paths in islice(product(*rules), _MAX_PATHS):
        minimums: dict[str, int] = {}
        for threshold in chain.from_iterable(paths):
            minimums[threshold.group_id] = max(threshold.minimum, minimums.get(threshold.group_id, threshold.minimum))
        found.append(tuple(Threshold(group, minimum) for group, minimum in minimums.items()))
    return found


def _is_same_name(one: str, other: str) -> bool:
    return one == other or ascii_lower(one) == ascii_lower(other)


def _quote(text: object) -> str:
    return repr(sanitize(text, 60)) if isinstance(text, str) else "none"
