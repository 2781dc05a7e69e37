"""Error codes: verifying signatures."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_CONFIGURATION = ("CustodyConfigurationError",)
_VERIFICATION = ("CustodyVerificationError",)

GROUP = Group(
    "Verification",
    (
        Entry(
            "pins-wrong",
            "The pinned keys or their settings cannot be used",
            "'superadmin_minimum' is missing: how many of the pinned keys must have signed the rules",
            "superadmin_keys is not public keys in PEM, another of the settings about what is trusted is missing or "
            "wrong, or the name of one is misspelt. A wrong one is never ignored: less would be verified than is "
            "meant.",
            "Correct the extra that the text names. superadmin_keys takes PEM or the absolute path of a file with it, "
            "and superadmin_minimum how many of them must have signed.",
            _CONFIGURATION,
        ),
        Entry(
            "pins-missing",
            "No keys are pinned",
            "no super-administrators' keys are pinned: what is whitelisted is the service's word",
            "The command verifies signatures, and neither the connection nor the options say whose keys count.",
            "Fill in superadmin_keys and superadmin_minimum. Get the keys from the super-administrators themselves, "
            "not from the service.",
            _CONFIGURATION,
        ),
        Entry(
            "not-verified",
            "Signatures do not prove what the service shows",
            "whitelisting request 3711 is not verified: it is no JSON object",
            "What the service shows cannot be verified: no valid chain of signatures leads from the pinned keys to it.",
            "Do not use the address. Show the text to those who run the service, and to the super-administrators.",
            _VERIFICATION,
        ),
        Entry(
            "rules-missing",
            "A request is shown without its rules",
            "whitelisting request 3711 is not verified: its rules, or the signatures of its rules, are missing",
            "The service shows a request without the rules that it was signed under, or without their signatures, and "
            "those in force cannot be used instead.",
            "Check that the user may read the rules: 'custody check' says so. Otherwise ask those who run the service.",
            _VERIFICATION,
        ),
        Entry(
            "rules-not-signed",
            "The rules are not signed with the pinned keys",
            "whitelisting request 3711 is not verified: its rules are signed by 1 of the 2 pinned keys that must have "
            "signed them",
            "Fewer of the pinned keys than superadmin_minimum have signed the rules. Other keys are pinned than those "
            "of this installation's super-administrators, or the rules are not theirs.",
            "Compare the pinned keys with those that the super-administrators give you in person. Never take them "
            "from the service.",
            _VERIFICATION,
        ),
        Entry(
            "rules-too-old",
            "The rules are older than those that count",
            "whitelisting request 3711 is not verified: its rules are of 2024-01-31, and none before 2025-01-31 count "
            "('rules_not_before')",
            "The request was signed under rules that are older than rules_not_before.",
            "Have the address approved again under the present rules, or set an earlier rules_not_before if the old "
            "ones are to count.",
            _VERIFICATION,
        ),
        Entry(
            "rule-missing",
            "It is not certain which rule decides",
            "whitelisting request 3711 is not verified: no rule is for the chain 'ETH'",
            "The signed rules have no rule for the request's chain and network, or several, or the network is not "
            "among the pinned ones.",
            "If the network is not pinned and should count, add it to networks. Otherwise the super-administrators "
            "must correct the rules.",
            _VERIFICATION,
        ),
        Entry(
            "signature-invalid",
            "A signature is not valid",
            "whitelisting request 3711 is not verified: its signature 2 of 3 is not valid: it is not one of 'approver'",
            "A signature cannot be read, or is not one of the user that it names.",
            "Do not use the address and do not sign the request. Show the text to those who run the service.",
            _VERIFICATION,
        ),
        Entry(
            "too-few-signatures",
            "Too few approvers have signed",
            "whitelisting request 3711 is not verified: it has too few valid signatures: 1 of 2 of the group 'T'",
            "The service shows a request as in effect, and the valid signatures are fewer than the rules demand.",
            "Do not use the address. Show the text to those who run the service, and to the super-administrators.",
            _VERIFICATION,
        ),
    ),
)
