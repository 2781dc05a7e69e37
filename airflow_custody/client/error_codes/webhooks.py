"""Error codes: webhooks, their deliveries and calls."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_REQUEST = ("CustodyRequestError",)

GROUP = Group(
    "Webhooks and events",
    (
        Entry(
            "webhook-secret-lost",
            "A webhook exists, and its secret is lost",
            "store_secret failed (TimeoutError), so the secret of webhook 123e4567-e89b-12d3-a456-426614174000, which "
            "exists, is lost. The next try says how to go on.",
            "The service made up a secret and shows it once. The function store_secret failed, so nobody has it.",
            "Correct store_secret, delete the webhook, and clear the task. Or choose the secret yourself, with "
            "secret_conn_id.",
            ("CustodyError",),
            True,
        ),
        Entry(
            "delivery-malformed",
            "A delivery is not in the service's form",
            "verify webhook delivery failed: the delivery is refused: the header x-webhook-signature is missing",
            "A header is missing, is given twice or is not text, or the body is not the bytes that came.",
            "Pass all headers, and the body before anything parses it. Somebody other than the service may be calling.",
            _REQUEST,
        ),
        Entry(
            "delivery-signature",
            "No signature of a delivery matches",
            "verify webhook delivery failed: the delivery is refused: no signature matches",
            "The delivery was signed with another secret, its body was changed on the way, or it is forged.",
            "Compare the webhook's secret. Check that no framework or gateway re-encodes the body.",
            _REQUEST,
        ),
        Entry(
            "delivery-late",
            "A delivery's time stamp is too far off",
            "verify webhook delivery failed: the delivery is refused: its time stamp is more than 300 s from this "
            "machine's",
            "The delivery took too long, is an old one that somebody sends again, or this machine's clock is wrong.",
            "Set the clock by NTP. If deliveries wait in a queue, raise tolerance.",
            _REQUEST,
        ),
        Entry(
            "delivery-repeated",
            "A delivery was seen before",
            "verify webhook delivery failed: the delivery is refused: it was seen before",
            "The service repeats a delivery under the same id until it gets a response, or somebody replays it.",
            "Respond with success and do nothing else: it was handled.",
            _REQUEST,
        ),
        Entry(
            "calls-missing",
            "Webhook calls may be lost",
            "read webhook calls failed: webhook calls may be lost: the newest call that was known is not "
            "listed any more: calls may have been removed before they were read. Find out what is missing.",
            "The service keeps its calls for a limited time, and the task last read so long ago that some may be gone.",
            "Find out what is missing, in the service. Then run the task once with on_gap='continue', and run it more "
            "often from then on.",
            ("CustodyError",),
        ),
        Entry(
            "calls-unordered",
            "What is new cannot be told from the listing of calls",
            "list webhook calls failed: the calls are not listed by their time stamps, the newest first, as was asked "
            "for (GET /webhooks/calls). What is new cannot be told from such a listing without reading all of it: "
            "list_webhook_calls without a cursor does that.",
            "The service does not list the calls in the order that was asked for, or shows too many without a usable "
            "time stamp.",
            "If the service's clock was ahead, wait until the time that it showed has passed. Otherwise read all "
            "calls with list_webhook_calls, and report the service's version.",
            ("CustodyResponseError",),
        ),
        Entry(
            "cursor-unusable",
            "The place to read on from cannot be used",
            "the cursor cannot be used: it must be a mapping with a 'version', not None; nothing was sent",
            "What was stored as the place in the journal was changed, was written by a later version of the package, "
            "or cannot be read from Airflow's state store just now.",
            "If the store cannot be read, the next try may. Otherwise repair or delete the stored cursor: without one, "
            "reading starts anew.",
            ("CustodyRequestError", "CustodyError"),
            None,
        ),
        Entry(
            "asset-wrong",
            "The asset cannot keep this task's place",
            "custody_conn_id is a template, so the asset must be given; nothing was sent. For example: "
            "asset=webhook_calls_asset('custody_default').",
            "The task keeps its place in the journal with an asset of its own. It has none, shares one with other "
            "instances of a mapped task, or something else emits events of it.",
            "Give each task that reads webhook calls an asset of its own.",
            ("CustodyConfigurationError",),
        ),
    ),
)
