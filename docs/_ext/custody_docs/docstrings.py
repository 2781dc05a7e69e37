"""What docstrings say, and what the code adds to them: types, defaults, templated parameters, roles."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from custody_docs.catalogue import Example, is_operator, operations_of
from custody_docs.rest import code

_FIELD = re.compile(r":(?P<kind>\w+)(?: (?P<name>[^:]+))?:(?P<text>.*)")
#: Defaults that need no word: what such a parameter does without a value is in its text.
_SILENT_DEFAULTS: tuple[object, ...] = (None, (), "", inspect.Parameter.empty)


def summary(obj: object) -> str:
    """Return the first sentence of a docstring, as reStructuredText."""
    paragraph = " ".join((inspect.getdoc(obj) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s+(?=[A-Z])", paragraph, maxsplit=1)[0]


def field(obj: object, kind: str) -> str:
    """Return the text of a docstring's field, such as ``return``; empty if it has none."""
    lines = (inspect.getdoc(obj) or "").splitlines()
    for first, last in _fields(lines):
        found = _FIELD.match(lines[first])
        if found and found["kind"] == kind:
            return " ".join(" ".join([found["text"], *lines[first + 1 : last]]).split())
    return ""


def parameters(obj: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function or of a class's constructor."""
    if fields := getattr(obj, "model_fields", None):
        # By the fields' names: the signature has those on the wire.
        kind = inspect.Parameter.KEYWORD_ONLY
        types = obj.__annotations__
        return {
            name: inspect.Parameter(
                name,
                kind,
                default=inspect.Parameter.empty if field.is_required() else field.default,
                annotation=types.get(name, inspect.Parameter.empty),
            )
            for name, field in fields.items()
        }
    try:
        # Not of the class itself: that of an operator has a metaclass, whose signature says nothing.
        found = inspect.signature(obj.__init__ if is_operator(obj) else obj).parameters
    except (TypeError, ValueError):
        return {}
    return {name: each for name, each in found.items() if name not in ("self", "cls")}


def signature(obj: Any) -> str | None:
    """Return the signature of an operator or a model, without annotations; None for anything else."""
    if not is_operator(obj) and not hasattr(obj, "model_fields"):
        return None
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters(obj).values()]
    return str(inspect.Signature(plain))


def complete(lines: Sequence[str], obj: Any, uses: Mapping[str, Sequence[Example]]) -> list[str]:
    """
    Return the lines of a docstring with what the code adds.

    :param lines: the docstring.
    :param obj: the class, function or method that it is of.
    :param uses: the examples that use a class, by its name.
    """
    result = list(lines)
    known = parameters(obj) if callable(obj) else {}
    added: list[str] = []
    texts = {found["name"] for line in lines if (found := _FIELD.match(line)) and found["kind"] == "param"}
    added += [line for each in known.values() if each.name not in texts for line in _without_text(each, obj)]
    types: list[str] = []
    for first, last in reversed(list(_fields(result))):
        found = _FIELD.match(result[first])
        if found is None or found["kind"] != "param" or found["name"] not in known:
            continue
        parameter = known[found["name"]]
        result[first:last] = _with_default(result[first:last], parameter.default)
        if _has_type(parameter):
            types.insert(0, f":type {parameter.name}: {_type(parameter.annotation, obj)}")
    added += types
    if (
        inspect.isfunction(obj)
        and isinstance(returned := obj.__annotations__.get("return"), str)
        and returned != "None"
    ):
        added.append(f":rtype: {_type(returned, obj)}")
    added += _facts(obj)
    if inspect.isclass(obj):
        links = ", ".join(f":doc:`/examples/{each.stem}`" for each in uses.get(obj.__name__, ()))
        added += [f":Examples: {links}"] if links else []
    if not added:
        return result
    while result and not result[-1].strip():
        result.pop()
    if not any(_FIELD.match(line) for line in result):
        result.append("")
    return [*result, *added, ""]


def _fields(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return where the fields of a docstring begin and end."""
    starts = [index for index, line in enumerate(lines) if _FIELD.match(line)]
    result = []
    for start in starts:
        end = start + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        result.append((start, end))
    return result


def _with_default(lines: list[str], default: object) -> list[str]:
    """Return the lines of a parameter, with its default if they do not say it."""
    is_silent = any(default is each or (default == each and type(default) is type(each)) for each in _SILENT_DEFAULTS)
    if is_silent or "efault" in " ".join(lines):
        return lines
    *others, last = lines
    text, mark, _ = last.partition(" (templated)")
    return [*others, f"{text} Default {_value(default)}.{mark}"]


def _without_text(parameter: inspect.Parameter, obj: Any) -> list[str]:
    """Return the lines of a parameter that a docstring leaves out, as its name says all."""
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return []
    (line,) = _with_default([f":param {parameter.name}:"], parameter.default)
    return [line, *([f":type {parameter.name}: {_type(parameter.annotation, obj)}"] if _has_type(parameter) else [])]


def _type(annotation: str, obj: Any) -> str:
    """Return a type as a user knows it: what a module's own name for a type stands for."""

    def public(found: re.Match[str]) -> str:
        value = getattr(sys.modules.get(obj.__module__), found[0], None)
        return found[0] if value is None else spell_type(value)

    text = re.sub(r"^Annotated\[([^,\[\]]+),.*\]$", r"\1", annotation)
    return re.sub(r"\b_\w+", public, text)


def spell_type(value: Any) -> str:
    """Return a type as one writes it, without the checks that are tied to it."""
    origin, arguments = get_origin(value), get_args(value)
    if origin is Annotated:
        return spell_type(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(map(spell_type, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None:
        return f"{spell_type(origin)}[{', '.join(map(spell_type, arguments))}]"
    if value is type(None) or value is None:
        return "None"
    return str(getattr(value, "__name__", value))


def _has_type(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, str)


def _value(value: object) -> str:
    """Return a default for people: a list of texts without its brackets."""
    texts = value if isinstance(value, tuple) and all(isinstance(each, str) for each in value) else (value,)
    return ", ".join(map(code, texts))


def _facts(obj: Any) -> list[str]:
    """Return the fields of what only the code says."""
    result = []
    if is_operator(obj):
        names = {attribute: name for name, attribute in getattr(obj, "field_names", {}).items()}
        templated = ", ".join(code(names.get(each, each)) for each in obj.template_fields)
        result.append(f":Templated: {templated}")
    elif isinstance(obj, Callable) and not inspect.isclass(obj):  # type: ignore[arg-type]
        for operation in operations_of(obj):
            roles = " and ".join(f"``{each}``" for each in operation.roles).replace(" or ", "`` or ``")
            result += [f":Needs: {roles or 'no role'}"]
            result += [] if operation.documented else [":Interface: |published|"]
    return result
