"""Error codes: signing and approving."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_CONFIGURATION = ("CustodyConfigurationError",)

GROUP = Group(
    "Signing and approving",
    (
        Entry(
            "signing-key-unusable",
            "The signing key cannot be loaded",
            "the signing key '/run/secrets/approver.pem' cannot be used: it is not a private key in PEM of a known "
            "type, or its password is wrong or missing",
            "The key's file or connection cannot be read, holds no private key in PEM, or is encrypted with another "
            "password.",
            "Give a P-256 private key in PEM, and its password if it is encrypted. A connection holds the key in the "
            "extra private_key, and its password in Password.",
            _CONFIGURATION,
        ),
        Entry(
            "key-curve-wrong",
            "The key is not a P-256 key",
            "the signing key '/run/secrets/approver.pem' cannot be used: it is on the curve secp384r1, and "
            "must be on P-256 (secp256r1)",
            "The service takes signatures of keys on the curve P-256 (secp256r1, prime256v1) only. This key is on "
            "another curve, such as secp256k1, or is not an elliptic-curve key.",
            "Use the approver's P-256 key. 'openssl pkey -in FILE -noout -text' shows a key's curve.",
            _CONFIGURATION,
        ),
        Entry(
            "signer-wrong",
            "The signer does not do what a signer must",
            "the signature that the signer 'kms' returned cannot be used: it is not 64 bytes r||s (is it DER? "
            "raw_signature() converts it); it was not sent",
            "The object given as signer has no name or no method sign, its public key is not PEM or DER or does not "
            "belong to its signatures, or it returns something other than 64 bytes.",
            "Correct the signer. A KMS or an HSM usually returns DER: convert it with raw_signature().",
            _CONFIGURATION,
        ),
        Entry(
            "signer-failed",
            "The signer failed",
            "approve whitelisting requests failed: the signer 'kms' failed: TimeoutError; its approval was not sent. "
            "What it says is not quoted, because it may hold a secret: look at the signer's own log.",
            "The signer's own code raised an error: the KMS or HSM cannot be reached, refuses, or the code has a "
            "mistake. A mistake, such as a TypeError, is not retried.",
            "Have the signer log what it can safely say, and read that. Check the access to the KMS or HSM from the "
            "worker, or the signer's code.",
            ("CustodyError", "CustodyConfigurationError"),
            None,
        ),
        Entry(
            "expected-wrong",
            "What the requests must ask for is not given",
            "'expected' does not say what the requests must ask for (did a template render to nothing?); nothing was "
            "signed",
            "The parameter expected is empty, has another form than the create task pushes, or lacks some of the "
            "requests.",
            "Pass what the create task pushed as 'request', for example expected=create.output['request']; with "
            "several requests, a list whose entries have the key 'id'.",
            ("CustodyRequestError",),
        ),
        Entry(
            "not-pending",
            "A request is not pending this user's approval",
            "approve whitelisting requests failed: not pending this user's approval: 3711 (status pending); nothing "
            "was signed. It is decided, this user has signed, or it is another group's turn: sign with the connection "
            "of an approver whose turn it is.",
            "The user of the connection is not in a group whose turn it is, has signed already, or the request was "
            "decided meanwhile.",
            "Use the connection of a user who is in the group whose turn it is. The Custody page and 'custody "
            "whitelist show ID' show which groups must still sign.",
            ("CustodyConflictError",),
        ),
        Entry(
            "request-changed",
            "A request has changed since it was read",
            "approve whitelisting requests failed: whitelisting request 3711 has changed since it was signed; a "
            "signature was made, and not sent",
            "The service shows another text for the request than the one that was compared or signed.",
            "Look at the request in the service, and find out who changed it. Then clear the task: it compares the new "
            "text.",
            ("CustodyConflictError",),
        ),
        Entry(
            "signed-otherwise",
            "This user has signed something else",
            "approve whitelisting requests failed: this user has signed something else: 3711 (of another text); this "
            "try signed nothing",
            "The request has a signature of this user over another text than the one that it shows now.",
            "Find out who else signs with this user's key. Have the request rejected if nobody knows.",
            ("CustodyConflictError",),
        ),
    ),
)
