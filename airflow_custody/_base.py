"""The base of all operators and sensors: the connection, the retry policy, and the check of what was given."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseOperator

from airflow_custody.client.arguments import check_text, is_missing, refuse_missing
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import as_list
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.retry_policy import CustodyFailException, use_default_retry_policy

if TYPE_CHECKING:
    from airflow.sdk.bases.operator import BaseOperatorMeta
else:
    # It is in another module on each line of Airflow.
    BaseOperatorMeta = type(BaseOperator)


class _RemembersGiven(BaseOperatorMeta):
    """A metaclass that remembers which templated fields an operator was given: the run must have values for them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        from_mapped = kwargs.get("_airflow_from_mapped", False)
        try:
            operator = super().__call__(*args, **kwargs)
        except (TypeError, ValueError, OverflowError) as error:
            if not from_mapped:
                raise
            # It was constructed in the run, of the run's values: no retry would help.
            raise CustodyFailException(
                CustodyRequestError(f"{error}; nothing was sent", code="parameter-wrong")
            ) from None
        given = {name for name in operator.template_fields if getattr(operator, name) is not None}
        # A mapped operator's values are resolved already. Its own Nones, in partial(), are told apart in the run.
        absent = {name for name, value in kwargs.items() if value is None} if from_mapped else set()
        # Not with the operator's own __setattr__: it searches each value for upstream tasks.
        operator.__dict__.update(_given=frozenset(given), _mapped_to_none=frozenset(absent))
        return operator


class CustodyTask(BaseOperator, metaclass=_RemembersGiven):
    """
    The base of the operators and sensors.

    A templated parameter that was given, and for which the run has no value, is refused: an upstream task that
    returned None, a template that renders to None or to the text ``None``, a None in ``expand`` or ``expand_kwargs``.
    A None that stands in the DAG file, also in ``partial`` or ``default_args``, means that it is left out; so does a
    key that is absent in ``expand_kwargs``.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param omit_if_none: names of optional parameters that are left out when the run has None for them, instead of
        being refused. Only those whose default is None. Default: none of them.
    """

    #: Parameters whose field has another name.
    field_names: ClassVar[Mapping[str, str]] = {}

    _given: frozenset[str]
    _mapped_to_none: frozenset[str]
    #: The ids of the task's whitelisting requests, once they are known.
    _linked_ids: Sequence[str] = ()

    def __init__(
        self,
        *,
        custody_conn_id: str = CustodyHook.default_conn_name,
        omit_if_none: str | Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_default_retry_policy(self)
        self.custody_conn_id = custody_conn_id
        self.omit_if_none = tuple(as_list(omit_if_none))
        if self.omit_if_none:
            optional = set(self._optional_parameters())
            for name in self.omit_if_none:
                if name not in optional:
                    allowed = ", ".join(sorted(optional)) or "none"
                    raise ValueError(f"omit_if_none names {name!r}, which cannot be left out; these can: {allowed}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # A DAG file may give a field later, too. A field that the run renders to None was given before.
        if value is not None and "_given" in self.__dict__ and name in self.template_fields:
            self.__dict__["_given"] |= {name}

    @classmethod
    def _optional_parameters(cls) -> Iterable[str]:
        """Yield the names of the templated parameters whose default is None."""
        seen: set[str] = set()
        for each in cls.__mro__:
            if "__init__" not in vars(each):
                continue
            for name, parameter in inspect.signature(each.__init__).parameters.items():  # type: ignore[misc]
                is_field = cls.field_names.get(name, name) in cls.template_fields
                if is_field and name not in seen and parameter.default is None:
                    yield name
                seen.add(name)

    def linked_request_ids(self) -> Sequence[str]:
        """Return the ids of the whitelisting requests that the task's link leads to; empty if none is known."""
        return self._linked_ids

    def _check_given(self) -> None:
        """
        Check that the run has a value for each field that was given. Call it before anything else happens.

        :raises CustodyRequestError: if it has none for one of them; it names the parameter.
        """
        parameters = {field: name for name, field in self.field_names.items()}
        for field in self.template_fields:
            name, value = parameters.get(field, field), getattr(self, field)
            if name in self.omit_if_none and is_missing(value):
                # In a DAG that renders to text, a template turns None into the text "None".
                setattr(self, field, None)
            elif value is not None:
                refuse_missing(name, value, advice=self._advice(name))
            elif name not in self.omit_if_none and (field in self._given or self._is_mapped_to_none(name)):
                refuse_missing(name, None, advice=self._advice(name))
        check_text("custody_conn_id", self.custody_conn_id)

    def _advice(self, name: str) -> str:
        """Return what to do about a value that the run does not have."""
        is_optional = name in set(self._optional_parameters())
        return f". To leave it out then, write omit_if_none=({name!r},)" if is_optional else ""

    def _is_mapped_to_none(self, name: str) -> bool:
        if name not in self._mapped_to_none:
            return False
        mapped = self.dag.task_dict.get(self.task_id) if self.has_dag() else None  # type: ignore[no-untyped-call]
        literal: Mapping[str, object] = getattr(mapped, "partial_kwargs", {})
        return name not in literal or literal[name] is not None or _may_be_overridden(mapped, name)


def request_ids_or_skip(name: str, value: object, *, skip_if_empty: bool, merge: bool = False) -> list[str]:
    """
    Return the ids of whitelisting requests, any number of them.

    :param name: the parameter's name.
    :param value: its value: one id or several.
    :param skip_if_empty: whether the task is skipped if there are none.
    :param merge: whether an id that is repeated is taken once. Default False: it is refused.
    :raises AirflowSkipException: if there are none, and ``skip_if_empty``.
    :raises CustodyRequestError: if there are none, or one cannot be an id.
    """
    from airflow_custody.client.whitelist.models import check_request_ids

    ids = check_request_ids(value, name, limit=None, merge=merge, may_be_empty=True)
    if not ids and skip_if_empty:
        raise AirflowSkipException(f"Nothing to do: {name} is an empty list, and skip_if_empty is set.")
    if not ids:
        raise CustodyRequestError(
            f"{name} is an empty list: there are no ids; nothing was sent",
            setting=name,
            advice="To skip the task then, set skip_if_empty=True.",
            code="parameter-wrong",
        )
    return ids


def _may_be_overridden(mapped: Any, name: str) -> bool:
    """Tell whether a row of a mapped task may have a value of its own for what ``partial`` says."""
    if mapped._disallow_kwargs_override:
        return False
    rows = mapped.expand_input.value
    if isinstance(rows, Mapping):
        return name in rows
    # With strict=False only the upstream task knows the contents of its rows.
    return not isinstance(rows, (list, tuple)) or any(name in row for row in rows)
