"""Error codes: tasks and triggers."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_REQUEST = ("CustodyRequestError",)

GROUP = Group(
    "Tasks and triggers",
    (
        Entry(
            "parameter-wrong",
            "A parameter has a value that cannot be used",
            "status must be text, not the int 1; nothing was sent",
            "A parameter of an operator, sensor or method has another type than it must have, or is out of its bounds. "
            "With render_template_as_native_obj=True, Airflow turns text that looks like a number into one.",
            "Correct the parameter that the text names. Where the DAG renders native objects, keep text as text with "
            "the filter tojson.",
            ("CustodyRequestError", "CustodyConfigurationError"),
        ),
        Entry(
            "parameter-missing",
            "A parameter has no value in this run",
            "address was given, and resolved to None: its template or upstream task gave no value; nothing was sent",
            "A template rendered to nothing, or an upstream task returned None or was skipped.",
            "Look at the rendered templates of the task, and at the XCom of the task before it. If the parameter may "
            "be left out, name it in omit_if_none.",
            ("CustodyRequestError", "CustodyConfigurationError"),
        ),
        Entry(
            "id-wrong",
            "An id is not an id",
            "request_ids must be a whole number, like '3711', not 'abc'; nothing was sent",
            "Ids of whitelisting requests are whole numbers, and those of webhooks are UUIDs. An id must not be given "
            "twice.",
            "Pass the id as the task before returns it, for example request_id=create.output.",
            _REQUEST,
        ),
        Entry(
            "ids-empty",
            "The list of ids is empty",
            "request_ids is an empty list: there are no ids; nothing was sent. To skip the task then, set "
            "skip_if_empty=True.",
            "The task was given a list without ids, for example because a plan created nothing.",
            "If that is normal, set skip_if_empty=True: then the task is skipped. Otherwise look at the task before.",
            _REQUEST,
        ),
        Entry(
            "wait-timed-out",
            "A sensor timed out",
            "Not effective within 3600 s. Last result: whitelisting request 3711 is pending approval "
            "(status pending, 0 signatures)",
            "What the sensor waits for did not happen within its timeout. The text ends with what it saw last.",
            "Act on the last result: ask the approvers, or look at the service. Raise timeout if the wait is usually "
            "longer. With soft_fail the task is skipped, with the same text.",
            ("AirflowSensorTimeout",),
            None,
        ),
        Entry(
            "task-stopped",
            "The task was stopped, or another try of it has taken over",
            "another try of this task has taken over: what this one wrote to the task's state is not there; nothing "
            "more was sent",
            "Somebody stopped or cleared the task while it ran, Airflow took it for dead and started it again, or "
            "writing to the task's state took too long.",
            "Usually nothing: the other try carries on and knows what was sent. If nobody cleared the task, look for "
            "an overloaded worker or API server.",
            ("CustodyError", "CustodyConnectionError"),
            None,
        ),
        Entry(
            "trigger-failed",
            "The triggerer brought no result",
            "wait failed: the poll has ended",
            "The poll in the triggerer ended, was replaced when the connection changed, or sent an event that this "
            "version of the package does not know.",
            "Usually nothing: the task is tried again if it has retries. If it goes on, read the triggerer's log, and "
            "check that workers and triggerer have the same version of this package.",
            ("CustodyError", "CustodyResponseError"),
            True,
        ),
        Entry(
            "trigger-unsupported",
            "This trigger cannot be used here",
            "CustodyWebhookCallTrigger: a task cannot wait for it. Use it with an AssetWatcher, on Airflow 3.3 or "
            "later. A DAG of an earlier Airflow can run CustodyReadWebhookCallsOperator on a schedule.",
            "The trigger of webhook calls keeps its place in an asset's state store, which only the triggers of an "
            "AssetWatcher have, from Airflow 3.3 on.",
            "Use it with an AssetWatcher, or run CustodyReadWebhookCallsOperator on a schedule.",
            ("CustodyConfigurationError",),
        ),
        Entry(
            "page-slow",
            "A page was not read in time",
            "the 20 s that there are for all of this were over. The service is slow to respond, or lists much. Try "
            "again later.",
            "A page of Airflow, or 'custody status', has a limited time for all that it reads from the service.",
            "Try again later. 'custody check' shows whether the service responds at all.",
            ("CustodyConnectionError",),
            True,
        ),
        Entry(
            "unexpected",
            "Something failed that is not about the service",
            "poll failed: OperationalError: database is locked",
            "Something else failed while the service was being polled, such as a secrets backend or Airflow's "
            "database.",
            "Read the type and the words of the error in the text. The task is tried again if it has retries.",
            ("CustodyError",),
            True,
        ),
    ),
)
