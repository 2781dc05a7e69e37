"""The base of all operators: how a failure ends the task, and closing the hook."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_custody._base import CustodyTask
from airflow_custody.assets import WHITELIST_EVENTS, whitelist_asset
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import create_counted
from airflow_custody.retry_policy import failing_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.idempotency.search import Creation


class CustodyOperator(CustodyTask):
    """The base of the operators."""

    def execute(self, context: Context) -> Any:
        """Do the operator's work; a failure that a retry would not help fails the task at once."""
        with failing_task(self, context):
            self._check_given()
            with CustodyHook(self.custody_conn_id) as hook:
                return self._run(context, hook)

    @abstractmethod
    def _run(self, context: Context, hook: CustodyHook) -> Any:
        """Do the operator's work and return its XCom."""


class WhitelistEventTask(CustodyOperator):
    """The base of the operators that plan, apply or verify a whitelist: their XCom, and the events of its asset."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if WHITELIST_EVENTS:
            self.outlets = [*self.outlets, WHITELIST_EVENTS]
        # Each value has a key of its own, too: plan.output["plan_hash"]. Set here, as a mapped task loses a default.
        self.multiple_outputs = True

    def _push(self, context: Context, result: dict[str, Any]) -> None:
        """Push to XCom what the task would return, before it fails or is skipped."""
        for key, value in {**result, "return_value": result}.items():
            context["ti"].xcom_push(key=key, value=value)

    def _emit(self, context: Context, event: str, facts: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """Emit an event of the connection's whitelist, which Airflow stores together with the task's success."""
        if WHITELIST_EVENTS:
            extra = {"event": event, **facts, **counts}
            context["outlet_events"][WHITELIST_EVENTS].add(whitelist_asset(self.custody_conn_id), extra=extra)


class CustodyCreateOperator(CustodyOperator):
    """The base of the operators that create something at most once for each task instance."""

    def execute(self, context: Context) -> Any:
        """Create it, and leave a trace for later tries before anything can fail."""
        from airflow_custody.idempotency.store import Store

        Store(context).begin()
        return super().execute(context)

    def _create_once(self, context: Context, creation: Creation, **settings: Any) -> str:
        from airflow_custody.idempotency.create import CreateOnce

        report = partial(create_counted, self.custody_conn_id, creation.what)
        return CreateOnce(context, creation, self.log, report=report, **settings).run()  # type: ignore[arg-type]


def delete_if_exists(what: str, delete: Callable[[], None], log: Any) -> bool:
    """
    Delete something; that it does not exist is a success, because a repeat after a lost response must succeed.

    :param what: its name, for the log.
    :param delete: deletes it; raises :class:`CustodyNotFoundError` only if the service itself does not know it.
    :param log: the task's log.
    :return: whether it was deleted; False if the service does not know it.
    """
    try:
        delete()
    except CustodyNotFoundError:
        log.warning("%s does not exist (deleted before): nothing to do.", what)
        return False
    log.info("%s is deleted.", what)
    return True
