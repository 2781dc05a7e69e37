"""Error codes: responses."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_RESPONSE = ("CustodyResponseError",)

GROUP = Group(
    "Responses",
    (
        Entry(
            "not-custody-response",
            "Something else than the service responded",
            "list health checks failed: this is not a response of the custody service: its body is not JSON (a web "
            "page, 'Sign in') (GET /health, status 200). Another program or a gateway is there: check the base URL of "
            "the Airflow connection 'custody_default'.",
            "The response is not one that the service sends. Usually the base URL leads to another program, which may "
            "not even speak HTTP, to the service's web pages, or to a page of a gateway that wants a sign-in or "
            "refuses the call.",
            "Correct the base URL. If a gateway refuses, have it let the call through. If the base URL is right and "
            "there is no gateway, the service has another version than this package knows: report the text.",
            (
                "CustodyResponseError",
                "CustodyConnectionError",
                "CustodyNotFoundError",
                "CustodyPermissionError",
                "CustodyRequestError",
            ),
        ),
        Entry(
            "response-truncated",
            "The response is not complete",
            "list health checks failed: this is not a response of the custody service: its body ends early (content "
            "type application/json, 4096 bytes) (GET /health, status 200)",
            "The connection ended in the middle of a response.",
            "Usually nothing: the task is tried again if it has retries. If it happens often, a proxy or load balancer "
            "in between may limit the size or the time of responses.",
            _RESPONSE,
            True,
        ),
        Entry(
            "too-large",
            "The service sends more than is read",
            "list health checks failed: the response is larger than 67108864 bytes and was not read to its end (GET "
            "/health, status 200)",
            "A response is larger than max_response_bytes, a listing has more than a million rows, or what a page of "
            "Airflow would have to read is too much.",
            "Check that the base URL is the service's. If it is, raise the extra max_response_bytes, or filter what is "
            "listed. For a page, use the command that it names.",
            _RESPONSE,
        ),
        Entry(
            "redirected",
            "The service redirects",
            "list health checks failed: the service redirects to https://custody.example.com/login; redirects are not "
            "followed (GET /health, status 302). The base URL must be the service's own.",
            "The response is a redirect. It is not followed, because credentials would go to another place.",
            "Write the URL that the redirect leads to into the connection if it is the service's. If it leads to a "
            "sign-in page, a gateway in between does not let the call through.",
            _RESPONSE,
        ),
        Entry(
            "error-in-success",
            "The status says success, and the body says error",
            "list health checks failed: the status says success, and the body an error: internal error (GET "
            "/health, status 200)",
            "The response has a status of success and an error body. It is not taken for a success.",
            "Read what the body says. A gateway that changes statuses may be in between.",
            _RESPONSE,
        ),
        Entry(
            "secret-in-response",
            "The response repeats a secret",
            "list health checks failed: the response repeats a secret that this client sends, so nothing of it is used "
            "(GET /health, status 200)",
            "The response contains the token, password or key that the client sent. What is read from it could reach "
            "a log. Secrets of fewer than 8 characters are not looked for, nor are words and numbers of fewer than 16: "
            "the service may use them itself.",
            "Find out what echoes requests: it may be a gateway that is being debugged, or a test server at the base "
            "URL. Then replace the credentials. If the password is also a name at the service, such as a tenant's, "
            "choose another one.",
            _RESPONSE,
        ),
        Entry(
            "listing-changed",
            "A listing changed while it was read",
            "find whitelisting requests failed: the listing changed while it was read, or its pages do not fit "
            "together: its total was 120 and is 121 (GET /whitelists/addresses). What was listed may not be complete.",
            "Rows came or went between two pages, or two replicas of the service show different states.",
            "Usually nothing: the task is tried again if it has retries.",
            ("CustodyResponseError", "CustodyError"),
            True,
        ),
        Entry(
            "not-found",
            "There is no such object or path",
            "set webhook status failed: NotFound: webhook 123e4567-e89b-12d3-a456-426614174000 not found (PATCH "
            "/webhooks/123e4567-e89b-12d3-a456-426614174000, status 404, E900-404). No webhook configuration has this "
            "id: it was deleted, or the id is of another service.",
            "The service does not know the object, or the base URL leads to a place that does not know the path.",
            "Check the id, and that it is an id of this installation. If nothing is found, correct the base URL: it "
            "ends before /api/rest/v1.",
            ("CustodyNotFoundError",),
        ),
        Entry(
            "not-offered",
            "The service may not offer this operation",
            "list webhooks failed: Not Found (GET /webhooks, status 404). The service may not offer this operation: it "
            "is not part of its documented interface.",
            "The operation is not part of the service's documented interface, and this installation or a gateway "
            "before it responds with 404, 405 or 501.",
            "Ask those who run the service whether its version has the operation and whether the gateway lets it "
            "through. The reference lists what is documented.",
            ("CustodyNotFoundError", "CustodyRequestError", "CustodyServerError", "CustodyError"),
            None,
        ),
        Entry(
            "bad-request",
            "The service refuses the request",
            "create whitelisting request failed: invalid argument: blockchain is not supported (POST "
            "/whitelists/addresses, status 400)",
            "The service responded with 400, 422 or another status from 400 to 499: it does not accept what was asked "
            "for.",
            "Read the service's own words in the text, and correct the parameter or row that they are about: its "
            "currency is the parameter blockchain. If it is about a signature, the signer's key must be the one that "
            "the service has for the user of the connection.",
            ("CustodyRequestError",),
        ),
        Entry(
            "conflict",
            "The state at the service does not allow it",
            "delete whitelisting request failed: already approved (POST /whitelists/addresses/delete, status 409)",
            "The service responded with 409: the object is in a state in which this cannot be done.",
            "Look at the object in the service. It may have been approved, rejected or deleted meanwhile.",
            ("CustodyConflictError",),
        ),
        Entry(
            "write-unconfirmed",
            "The service does not confirm the change",
            "set webhook status failed: this is not a response of the custody service: it is not empty, and does not "
            "show the new state (...); the service was asked, and its status is enabled (PATCH /webhooks/..., "
            "status 200). Whether it was done is not known. Doing it again does no harm.",
            "The response to a change is not the service's confirmation, and reading the object back did not show the "
            "change either.",
            "Clear the task: doing it again does no harm. If it goes on, look at the object in the service.",
            (*_RESPONSE, "CustodyConflictError", "CustodyRequestError"),
            None,
        ),
    ),
)
