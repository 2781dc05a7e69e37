"""The base of all operators: it handles failures and closes the hook."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_custody._base import CustodyTask
from airflow_custody.assets import WHITELIST_EVENTS, whitelist_asset
from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import create_counted
from airflow_custody.plugin.links import PAGE_LINKS
from airflow_custody.retry_policy import failing_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.idempotency.create import Created
    from airflow_custody.idempotency.search import Creation


class CustodyOperator(CustodyTask):
    """The base of the operators."""

    operator_extra_links = PAGE_LINKS

    def execute(self, context: Context) -> Any:
        """
        Do the operator's work.

        If a retry cannot help, the task fails at once.
        """
        with failing_task(self, context):
            self._check_given()
            with CustodyHook(self.custody_conn_id) as hook:
                return self._run(context, hook)

    @abstractmethod
    def _run(self, context: Context, hook: CustodyHook) -> Any:
        """Do the operator's work and return its XCom."""


class WhitelistEventTask(CustodyOperator):
    """The base of the operators that emit events of a whitelist."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if WHITELIST_EVENTS:
            self.outlets = [*self.outlets, WHITELIST_EVENTS]
        # Push each value also under its own XCom key, such as plan.output["plan_hash"]. Set this here, because a mapped
        # task ignores a changed default of the parameter.
        self.multiple_outputs = True

    def _push(self, context: Context, result: dict[str, Any]) -> None:
        """Push the result of a task that will fail or be skipped."""
        for key, value in {**result, "return_value": result}.items():
            context["ti"].xcom_push(key=key, value=value)

    def _emit(self, context: Context, event: str, facts: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        """
        Emit an event on the asset of the connection's whitelist.

        Airflow stores the event together with the task's success, so a task that fails emits nothing.
        """
        if WHITELIST_EVENTS:
            extra = {"event": event, **facts, **counts}
            context["outlet_events"][WHITELIST_EVENTS].add(whitelist_asset(self.custody_conn_id), extra=extra)


class CustodyCreateOperator(CustodyOperator):
    """The base of operators that record what they send."""

    def execute(self, context: Context) -> Any:
        """Record that this try has begun, then do the operator's work."""
        from airflow_custody.idempotency.store import Store

        Store(context).begin()
        return super().execute(context)

    def _create_once(self, context: Context, creation: Creation, **settings: Any) -> Created:
        from airflow_custody.idempotency.create import CreateOnce

        report = partial(create_counted, self.custody_conn_id, creation.what)
        return CreateOnce(context, creation, self.log, report=report, **settings).run()  # type: ignore[arg-type]


def delete_if_exists(what: str, delete: Callable[[], None], log: Any) -> bool:
    """
    Delete an object, or do nothing if it does not exist.

    If the object is missing, this succeeds, because a retry after a lost response must succeed.

    :param what: the object's name, for the log.
    :param delete: deletes the object; raises :class:`CustodyNotFoundError` only if the service itself reports that the
        object does not exist.
    :param log: the task's log.
    :return: whether the object was deleted; False if it did not exist.
    """
    try:
        delete()
    except CustodyNotFoundError:
        log.warning("%s does not exist (already deleted?): nothing to do.", what)
        return False
    log.info("%s is deleted.", what)
    return True
