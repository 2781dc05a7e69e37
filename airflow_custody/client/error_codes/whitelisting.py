"""Error codes: asking for whitelisted addresses, and waiting for them."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_REQUEST = ("CustodyRequestError",)
_UNKNOWN = ("CustodyOutcomeUnknownError",)
_ENDED = ("CustodyConflictError",)

GROUP = Group(
    "Whitelisting",
    (
        Entry(
            "request-wrong",
            "A whitelisting request is incomplete or wrong",
            "create whitelisting request failed: nothing was sent: neither blockchain nor currency is given: one of "
            "them must name the chain",
            "A field of the request is missing, has another type, or does not go with another one. The text names each "
            "field.",
            "Correct the operator's parameters, or the row.",
            _REQUEST,
        ),
        Entry(
            "address-invalid",
            "The address cannot be one of its chain",
            "nothing was sent: address: 0x5aAeb6…1BeAed is not a valid ETH address: its checksum is wrong; "
            "check_address=False sends it all the same",
            "The address has a wrong checksum, length or prefix for its blockchain and network. It may be mistyped or "
            "of another chain.",
            "Ask the address's owner for it again, and correct it. If you are certain that it is right, set "
            "check_address=False.",
            _REQUEST,
        ),
        Entry(
            "outcome-unknown",
            "It is not known whether something was created",
            "it cannot be known whether the whitelisting request that this task asks for exists, so it is not sent "
            "again. [...] Look in the service for a whitelisting request for it, pending ones included. [...] Then "
            "clear this task.",
            "Something was sent, and its response is missing, truncated or an error. A search at the service decided "
            "nothing. It is never sent again automatically. Airflow retries only where the text says that trying again "
            "is safe.",
            "Search the service, pending requests included, then do what the text says: set the variable that it "
            "names to the id, or to none, and clear the task.",
            _UNKNOWN,
            None,
        ),
        Entry(
            "record-unreadable",
            "The record of an earlier try cannot be read",
            "the record of an earlier try cannot be read, so nothing is sent: another version of "
            "airflow-provider-custody wrote it, or it was damaged",
            "The task's state has a record in a form that this version does not know: the package was replaced by an "
            "older one, or somebody changed the state.",
            "Check at the service whether what the task asks for exists. If it does not, delete the key that the text "
            "names from the task's state, and clear the task.",
            _UNKNOWN,
        ),
        Entry(
            "variable-wrong",
            "The variable does not name what this task asked for",
            "it cannot be known whether [...] The variable says whitelisting request 3711, which does not exist.",
            "Somebody set the variable custody_create_... to an id that does not exist, that existed before the task, "
            "or that is for something else; or to none although it exists.",
            "Look at the service again, set the variable to the id of what this task asked for, or to none, and clear "
            "the task.",
            _UNKNOWN,
        ),
        Entry(
            "request-rejected",
            "A whitelisting request was rejected",
            "whitelisting request 3711 was rejected (status rejected, 0 signatures). If the address is still wanted, "
            "create another request.",
            "An approver rejected the request, or it expired or was cancelled.",
            "Read the comment in the service. If it was right to ask, clear the task that creates the request, with "
            "all that follows: it asks again.",
            _ENDED,
        ),
        Entry(
            "request-gone",
            "A whitelisting request is not there any more",
            "whitelisting request 3711 does not exist: it has not been listed for 120 s",
            "The service has not listed the request for a while. It was deleted, or is of another installation or "
            "tenant, or this user may not see it.",
            "Check the id and the connection. If somebody deleted the request, clear the task that creates it.",
            ("CustodyConflictError", "CustodyNotFoundError", "CustodyRequestError"),
        ),
        Entry(
            "request-unreadable",
            "A whitelisting request cannot be read",
            "whitelisting request 3711 cannot be verified: its payload or its hash is missing",
            "The service shows the request without its payload, or with a payload that does not match its hash.",
            "Look at the request in the service. If others can be read, have this one rejected and ask again.",
            ("CustodyResponseError", "CustodyVerificationError"),
            None,
        ),
        Entry(
            "request-differs",
            "A whitelisting request is not what was asked for",
            "whitelisting request 3711 is not what was asked for: address is '0x...', and not '0x...'",
            "The service shows another value in the request than the task expects. Somebody asked for something else, "
            "or the service or a gateway changed it.",
            "Do not approve it. See it with 'custody whitelist show ID', and find out who asked for it; if nobody "
            "knows, have it rejected. If it only has a field that nobody asked for, and that is harmless, accept the "
            "field with accept_fields.",
            _REQUEST,
        ),
        Entry(
            "request-contradicts",
            "A whitelisting request contradicts itself",
            "whitelisting request 3711 contradicts itself or what was asked for: its payload is for ETH, and the "
            "service shows BTC",
            "What would be signed, and what the service shows beside it, are not the same.",
            "Do not approve it. Ask those who run the service, and have the request rejected.",
            ("CustodyRequestError", "CustodyVerificationError"),
        ),
        Entry(
            "created-not-listed",
            "The service does not list what it created",
            "the service does not list what it said that it created: 3711, 3712",
            "The service confirmed requests and does not list them. Its listing lags, or what it confirmed was not "
            "done.",
            "Usually nothing: the next try looks again. If it goes on, look for these ids at the service.",
            _ENDED,
            True,
        ),
    ),
)
