"""What all operators share: the connection, the retry policy, how a failure ends the task, and closing the hook."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_custody.client.errors import CustodyNotFoundError, CustodyRequestError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.retry_policy import failing_task, use_default_retry_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.idempotency.create_once import Creation, OnClear, Timing

T = TypeVar("T")


class CustodyOperator(BaseOperator):
    """
    The base of the operators.

    :param custody_conn_id: id of the Airflow connection.
    """

    def __init__(self, *, custody_conn_id: str = CustodyHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        use_default_retry_policy(self)
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> Any:
        """Do the operator's work; a failure that a retry would not help fails the task at once."""
        with failing_task(self), CustodyHook(self.custody_conn_id) as hook:
            return self._run(context, hook)

    @abstractmethod
    def _run(self, context: Context, hook: CustodyHook) -> Any:
        """Do the operator's work and return its XCom."""


class CustodyCreateOperator(CustodyOperator):
    """The base of the operators that create something at most once for each task instance."""

    #: The clocks and bounds of creating once; None: the defaults. A test's subclass may turn them.
    create_timing: ClassVar[Timing | None] = None

    def _create_once(
        self,
        context: Context,
        creation: Creation,
        *,
        on_clear: OnClear = "reuse",
        look_before_create: bool = True,
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
    ) -> str:
        from airflow_custody.idempotency.create_once import CreateOnce

        return CreateOnce(
            context,
            creation,
            self.log,  # type: ignore[arg-type]
            on_clear=on_clear,
            look_before_create=look_before_create,
            lookup_wait=lookup_wait,
            timing=self.create_timing,
        ).run()


def rendered(name: str, value: T, *, operation: str) -> T:
    """
    Return a value that a template may have made, or refuse what it makes of a value that does not exist.

    :param name: the parameter's name.
    :param value: its value.
    :param operation: what the operator does with it, for the error.
    :raises CustodyRequestError: if it is the text "None", which an XCom that nobody pushed renders to.
    """
    if isinstance(value, str) and value.strip() == "None":
        raise CustodyRequestError(
            f"{name} is the text 'None': its template found no value; nothing was sent", operation=operation
        )
    return value


def required_text(name: str, value: str) -> str:
    """
    Return a text that must not be empty.

    :raises CustodyRequestError: if it is empty.
    """
    if not value or not str(value).strip():
        raise CustodyRequestError(f"the {name} is empty; nothing was sent")
    return value


def delete_if_exists(delete: Callable[[], None]) -> bool:
    """
    Delete something; that it does not exist is a success, because a repeat after a lost response must succeed.

    :param delete: deletes it.
    :return: whether it was deleted; False if the service does not know it.
    """
    try:
        delete()
    except CustodyNotFoundError as error:
        if error.from_gateway:
            # Somebody's 404 page says nothing about the object.
            raise
        return False
    return True
