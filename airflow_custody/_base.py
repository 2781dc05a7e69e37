"""The base of all operators and sensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseOperator

from airflow_custody.client.arguments import check_text, describe, is_missing, refuse_missing
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.whitelist.ids import check_request_ids
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.retry_policy import use_default_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from airflow.sdk.definitions.xcom_arg import PlainXComArg
    from typing_extensions import Self


class _NotGiven(Enum):
    """Values of a field whose parameter was left out, or is None. Airflow's UI shows them as None."""

    NOT_GIVEN = "not given"
    #: The parameter is None, and the constructor accepts this if the None is written in the DAG file.
    WRITTEN_NONE = "written None"

    def __repr__(self) -> str:
        return self.name

    def serialize(self) -> None:
        """Return None, which Airflow 3 stores in the serialized DAG and shows as the rendered value."""

    def __str__(self) -> str:
        # Airflow 2 stores and shows this text.
        return "None"


#: Default of an optional templated parameter. If the default were None, a None from an upstream task would look like an
#: omitted parameter.
NOT_GIVEN: Any = _NotGiven.NOT_GIVEN

#: The names of parameters by their fields, where the two differ. A field `label` is impossible, because every Airflow
#: operator has a read-only property of that name.
PARAMETER_OF = {"address_label": "label"}

# Names of parameters in other providers.
_OTHER_NAMES = {"conn_id": "custody_conn_id", "name": "label", "chain": "blockchain", "tag": "memo"}
# What an expression in a template renders to if its value is None or undefined. The invisible characters distinguish it
# from the text "None".
_RENDERED_NONE = "\N{WORD JOINER}None\N{WORD JOINER}"


class RendersNoData(BaseOperator):
    """
    A task that renders the templates in its DAG file, but not values from upstream tasks.

    Airflow renders the rows of ``expand_kwargs(upstream.output)``, although they are data (apache/airflow#38745). This
    class leaves them unchanged, like the values of ``expand(label=upstream.output)``. Values written in the DAG file
    are rendered: in ``partial()``, ``expand(label=[...])`` and ``expand_kwargs([...])``.

    A subclass must not build a new text from a parameter in its constructor: this class would not recognize the new
    text as upstream data, and Airflow would render it.

    This class and its subclasses rely on the following behaviour of Airflow, which is not part of its documented
    interface. It was tested on Airflow 3.3.2 and 2.11.2:

    - Airflow constructs a mapped task's instance with ``_airflow_from_mapped=True``; ``__new__`` gets all arguments.
    - A mapped task has ``expand_input.value`` and ``partial_kwargs``.
    - Airflow calls ``render_template`` for each field, and ``render_template`` calls itself for each part of a
      collection. It skips objects whose ``id()`` is in ``seen_oids``.
    - Airflow 3 stores and shows the result of a value's method ``serialize``; Airflow 2 uses its text.
    """

    #: The arguments of a mapped task, which Airflow constructs from ``partial()`` and the row when the task runs; None
    #: if the task is not mapped.
    _mapped_arguments: Mapping[str, Any] | None = None

    if TYPE_CHECKING:
        # For Airflow's own declaration, ``task.output["key"]`` is an error in an editor.
        @property
        def output(self) -> PlainXComArg:
            """Return the task's result, for another task's parameter; ``output["key"]`` is the XCom ``key``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        task = super().__new__(cls)
        if kwargs.get("_airflow_from_mapped"):
            vars(task)["_mapped_arguments"] = kwargs
        return task

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """
        Render a value, unless it comes from an upstream task.

        Airflow calls this for each field, and for each part of a list or a dict.
        """
        seen_oids = set() if seen_oids is None else seen_oids
        seen_oids.update(id(part) for value in self._data(context) for part in _parts(value))
        return super().render_template(content, context, jinja_env, seen_oids)

    def _mapped_task(self) -> Any:
        """Return this instance's mapped task; None if it is not mapped."""
        return None if self._mapped_arguments is None else self.dag.get_task(self.task_id)

    def _data(self, context: Context) -> list[Any]:
        """Return a mapped task's arguments that come from upstream tasks; empty if the task is not mapped."""
        if self._mapped_arguments is None:
            return []
        task, arguments = self._mapped_task(), self._mapped_arguments
        source = task.expand_input.value
        if isinstance(source, Mapping):
            return [arguments[name] for name, values in source.items() if not _is_written(values)]
        if _is_written(source) and _is_written(source[context["ti"].map_index]):
            return []
        # Compare the values, because a row may override arguments of partial().
        return [value for name, value in arguments.items() if value is not task.partial_kwargs.get(name, NOT_GIVEN)]


def _is_written(values: object) -> bool:
    """Tell whether a mapped task's input is written in the DAG file."""
    return isinstance(values, (Mapping, Sequence))


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and, if it is a collection, everything in it."""
    yield value
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _parts(each)


class CustodyTask(RendersNoData):
    """
    The base of the operators and sensors.

    A constructor assigns each parameter to its field. For a wrong value, it calls :meth:`_refuse` instead of raising an
    error. An optional templated parameter has the default :data:`NOT_GIVEN`; if it is not passed, its field is None
    when the task runs. Any other None is refused, whether it comes from a mapped task's row, a template, an upstream
    task or the DAG file, unless :meth:`_if_written` or ``omit_if_none`` accepts it. The texts ``None`` and ``null``, to
    which a template may render a missing value, are also refused, and so is a None that a template puts inside other
    text.

    :param custody_conn_id: id of the Airflow connection. (templated)
    :param omit_if_none: names of optional parameters. If the value of such a parameter is None when the task runs, the
        parameter is left out instead of being refused. Default: no names.
    """

    #: Whether the values of the fields have been checked, and are final.
    _is_checked = False
    #: The error about the first wrong setting of a mapped task; empty if there is none.
    _refused = ""
    #: The ids of the task's whitelisting requests, once they are known.
    _linked_ids: Sequence[str] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        task = super().__new__(cls, *args, **kwargs)
        for field in cls.template_fields:
            name = PARAMETER_OF.get(field, field)
            task._refuse_operators(name, kwargs.get(name))
        return task

    def __init__(
        self,
        *,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        omit_if_none: str | Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        # Refuse unknown parameters here, because Airflow's own error does not suggest a name, and is not visible in the
        # log of a mapped task.
        known = _parameters(type(self))
        for name in sorted(each for each in kwargs if each not in known and not each.startswith("_airflow")):
            near = get_close_matches(_OTHER_NAMES.get(name, name), known, n=1)
            self._refuse(f"unknown parameter {name!r}" + (f": did you mean {near[0]}?" if near else ""))
            del kwargs[name]
        super().__init__(**kwargs)
        use_default_retry_policy(self)
        # In the run, the field is text.
        self.custody_conn_id: str = custody_conn_id  # type: ignore[assignment]
        if not isinstance(omit_if_none, (str, Collection)):
            self._refuse(f"omit_if_none must be a name or a list of names, not {describe(omit_if_none)}")
            omit_if_none = ()
        self.omit_if_none = (omit_if_none,) if isinstance(omit_if_none, str) else tuple(omit_if_none)
        optional = self._optional_parameters() if self.omit_if_none else set()
        for name in self.omit_if_none:
            if name not in optional:
                allowed = ", ".join(sorted(optional)) or "none"
                self._refuse(f"omit_if_none contains {name!r}, which cannot be left out. Allowed names: {allowed}")

    def _refuse(self, message: str) -> None:
        """
        Report a wrong setting.

        When the DAG file is parsed, this raises an error. But a mapped task is constructed when it runs, before the
        visible part of its log begins, so it raises the error only when it is executed.

        :param message: the error message.
        :raises ValueError: when the DAG file is parsed.
        """
        if self._mapped_arguments is None:
            raise ValueError(message)
        # Bypass Airflow's __setattr__, which fails until Airflow's constructor has begun.
        vars(self)["_refused"] = self._refused or message

    def _refuse_operators(self, name: str, value: object) -> None:
        """Refuse an operator that was passed, by itself or in a list, instead of its output."""
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(each, "task_id") and hasattr(type(each), "output"):
                self._refuse(f"{name}: the task {each.task_id!r} was given instead of its output: append .output")

    def _check_flags(self, **flags: object) -> None:
        """Check settings that must be True or False."""
        for name, value in flags.items():
            if not isinstance(value, bool):
                self._refuse(f"{name} must be True or False, not {value!r}")

    def _check_numbers(
        self, numbers: Mapping[str, object], low: float = 0, high: float = 1e9, *, whole: bool = False
    ) -> None:
        """
        Check settings that must be numbers.

        :param numbers: the settings' values, by name.
        :param low: the lowest allowed number. Default 0.
        :param high: the highest allowed number. Default 1e9, which is 30 years in seconds.
        :param whole: whether the numbers must be whole numbers. Default False.
        """
        for name, value in numbers.items():
            is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:  # type: ignore[operator]
                kind = "whole number" if whole else "number"
                self._refuse(f"{name} must be a {kind} from {low:g} to {high:g}, not {value!r}")

    def _if_written(self, name: str, value: Any) -> Any:
        """
        Return the value to assign to the field of a parameter that may be None.

        A None is accepted only if it is written in the DAG file. In a mapped task, it must be written in ``partial()``,
        because a None in a row may be a missing value.
        """
        return _NotGiven.WRITTEN_NONE if value is None else value

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> Any:
        """Render the fields once. After a deferral, dag.test() of Airflow 2 would render them a second time."""
        if not self._is_checked:
            super().render_template_fields(context, jinja_env)

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render a value, and mark each expression whose value is None or undefined."""
        environment = jinja_env or self.get_template_env()
        if not isinstance(environment.finalize, _Finalize):
            is_native = any(each.__name__ == "NativeEnvironment" for each in type(environment).__mro__)
            environment = environment.overlay(finalize=_Finalize(environment.finalize, is_native=is_native))
        return super().render_template(content, context, environment, seen_oids)

    @classmethod
    def _optional_parameters(cls) -> set[str]:
        """Return the names of the templated parameters that may be left out."""
        return {name for name, parameter in _parameters(cls).items() if parameter.default is NOT_GIVEN}

    def linked_request_ids(self) -> Sequence[str]:
        """Return the ids of the known whitelisting requests for the task's link."""
        return self._linked_ids

    def _check_given(self) -> None:
        """
        Check the settings, and the values of the fields when the task runs. Set omitted fields to None.

        Call this before anything else in the run.

        :raises CustodyRequestError: if a value is missing, or a setting is wrong. The error names the parameter.
        """
        if self._refused:
            raise CustodyRequestError(f"{self._refused}; nothing is sent")
        if self._is_checked:
            return
        values = {field: self._value_in_run(field, PARAMETER_OF.get(field, field)) for field in self.template_fields}
        optional = self._optional_parameters()
        for field, value in values.items():
            if value is not NOT_GIVEN:
                name = PARAMETER_OF.get(field, field)
                advice = f". Leave it out, or write omit_if_none=({name!r},)" if name in optional else ""
                refuse_missing(name, value, advice=advice)
        for field, value in values.items():
            setattr(self, field, None if value is NOT_GIVEN else value)
        check_text("custody_conn_id", self.custody_conn_id)
        self._is_checked = True

    def _value_in_run(self, field: str, name: str) -> Any:
        """
        Return a field's value, which may be None; :data:`NOT_GIVEN` if it was omitted, or None is written in the DAG
        file.

        :raises CustodyRequestError: if a part of a text is missing.
        """
        value = _without_marks(name, getattr(self, field))
        if value is _NotGiven.WRITTEN_NONE:
            task = self._mapped_task()
            if task is None or task.partial_kwargs.get(name, NOT_GIVEN) is None:
                return NOT_GIVEN
            value = None
        if name in self.omit_if_none and is_missing(value):
            return NOT_GIVEN
        return value


class _Finalize:
    """
    Jinja's ``finalize``, a function that Jinja calls with the value of each expression before the value becomes text.

    :param inner: the DAG's own ``finalize``; None: the DAG has none.
    :param is_native: whether values keep their types (native rendering), so that rows may contain None.
    """

    def __init__(self, inner: Callable[[Any], Any] | None, *, is_native: bool) -> None:
        self._inner = inner
        self._is_missing = _is_none if is_native else _has_none

    def __call__(self, value: Any) -> Any:
        value = value if self._inner is None else self._inner(value)
        # A DAG can turn off Jinja's own error about an undefined name. Jinja is not imported here, because it is heavy.
        is_undefined = any(each.__name__ == "Undefined" for each in type(value).__mro__)
        # If a DAG has not turned off this error, converting an undefined name to text raises it here.
        return _RENDERED_NONE if self._is_missing(value) or (is_undefined and not str(value)) else value


def _is_none(value: Any) -> bool:
    return value is None


def _has_none(value: Any) -> bool:
    """Tell whether a value is None, or a collection that contains None, which would become text."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return value is None or (isinstance(value, (list, tuple, set)) and any(map(_has_none, value)))


def _without_marks(name: str, value: Any) -> Any:
    """
    Return a rendered value with None in place of each mark of an expression whose value is missing.

    :raises CustodyRequestError: if such a mark is inside other text, as for ``INV-{{ none }}``.
    """
    marked = [text for text in map(_text_of, _parts(value)) if _RENDERED_NONE in text]
    if not marked:
        return value
    if all(text.strip() == _RENDERED_NONE for text in marked):
        return _with_none(value)
    raise CustodyRequestError(
        f"{name}: an expression of its template resolved to None inside other text; nothing is sent",
        setting=name,
        advice="Check the value that the template reads. If it may be missing, write {{ ... or 'text' }}.",
        code="parameter-wrong",
    )


def _with_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_none(each) for key, each in value.items()}
    # Only these collections can contain marks, because Airflow renders no others.
    if isinstance(value, set):
        return {_with_none(each) for each in value}
    if isinstance(value, (list, tuple)):
        return [_with_none(each) for each in value]
    return None if _RENDERED_NONE in _text_of(value) else value


def _text_of(value: Any) -> str:
    """Return a value's text if a template can render the value: a text, or a path in an object storage."""
    return value if isinstance(value, str) else value.as_posix() if hasattr(value, "as_posix") else ""


@cache
def _parameters(operator: type) -> Mapping[str, inspect.Parameter]:
    """Return all parameters of an operator and its bases, by name."""
    found: dict[str, inspect.Parameter] = {}
    for each in reversed(operator.__mro__):
        if "__init__" in vars(each):
            found.update(inspect.signature(vars(each)["__init__"]).parameters)
    return found


def request_ids_or_skip(name: str, value: object, *, skip_if_empty: bool, merge: bool = False) -> list[str]:
    """
    Return a parameter's ids of whitelisting requests, or skip the task.

    :param name: the parameter's name.
    :param value: the parameter's value: one id or several.
    :param skip_if_empty: whether the task is skipped if there are no ids.
    :param merge: whether repeated ids are merged. Default False: they are refused.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty`` is True.
    :raises CustodyRequestError: if there are no ids, and ``skip_if_empty`` is False; or if an id is malformed.
    """
    ids = check_request_ids(value, name, limit=None, merge=merge, may_be_empty=True)
    if not ids and skip_if_empty:
        raise AirflowSkipException(f"Nothing to do: {name} is an empty list, and skip_if_empty is set.")
    if not ids:
        raise CustodyRequestError(
            f"{name} is an empty list; nothing is sent",
            setting=name,
            advice="To skip the task in this case, set skip_if_empty=True.",
            code="parameter-wrong",
        )
    return ids
