"""Each failure has one code; each code is raised somewhere, and says what to do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from error_codes_raised import CODES, SPECIFIC, code_of, codes_in, error_of, is_retryable, modules, passes_code

from airflow_custody.client import errors
from airflow_custody.client.error_codes.catalogue import ENTRIES, GROUPS, Entry
from airflow_custody.client.errors import CustodyError

_ALL = list(ENTRIES.values())
#: Their defaults: at a raise that gives no code, and for an error of an older process.
_DEFAULTS = {each.code for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CustodyError)}
_LONGEST_LINE = 270


def test_the_catalogue_has_each_code_once() -> None:
    assert len(_ALL) == sum(len(group.entries) for group in GROUPS)
    assert ENTRIES.keys() == CODES
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in CODES)


def test_each_code_that_is_given_is_known() -> None:
    unknown = [
        f"{module.path}:{call.lineno}: {node.value}"
        for module in modules()
        for call in module.calls()
        for node in ast.walk(code_of(call) or ast.Pass())
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in {*CODES, "code"}
    ]
    assert unknown == []


def test_each_code_is_raised() -> None:
    given = {text for module in modules() for text in module.texts}
    assert sorted(CODES - given) == []


def test_an_error_of_a_broad_type_gives_a_code() -> None:
    """What is wrong with a setting, say, has many causes: none is left at the type's code by oversight."""
    missing = [
        f"{module.path}:{call.lineno}: {name}"
        for module in modules()
        for call in module.calls()
        if (name := error_of(call)) and name not in SPECIFIC and not passes_code(call)
        # They hand on what they are given.
        if not any(each.arg is None for each in call.keywords)
    ]
    assert missing == []


def test_only_these_failures_have_no_code() -> None:
    """
    A task fails with a ``CustodyError`` or with a time-out to which its sensor adds a code. Without one are Python's
    own errors while a DAG file is read, and skips. What is named here is caught within the package.
    """
    allowed = {"TypeError", "ValueError", "AirflowSkipException", "AirflowSensorTimeout", "CustodyFailException"}
    # On import, as the standard provider's operators do.
    allowed |= {"AirflowOptionalProviderFeatureException"}
    internal = {"CursorError", "RuntimeError", "HTTPException"}
    found = {
        name
        for module in modules()
        if module.path.split("/")[0] in ("operators", "sensors", "triggers", "hooks", "_base.py", "signers.py")
        for _, name in module.raised()
        if name[0].isupper() and not issubclass(getattr(errors, name, object), CustodyError)
    }
    assert found <= allowed | internal, found


def test_the_catalogue_has_the_types_and_says_what_is_retried() -> None:
    found = [
        (code, name, is_retryable(call, name))
        for module in modules()
        for call in module.calls()
        if (name := error_of(call))
        for code in codes_in(call)
    ]
    assert len(found) > 80
    assert [(code, name) for code, name, _ in found if name not in ENTRIES[code].errors] == []
    retried = {code: {each for other, _, each in found if other == code} for code, _, _ in found}
    wrong = [code for code, ways in retried.items() if ENTRIES[code].is_retried not in (None, *ways)]
    assert wrong == []
    assert [code for code, ways in retried.items() if len(ways) > 1 and ENTRIES[code].is_retried is not None] == []


def test_nothing_loads_the_catalogue_but_who_shows_it() -> None:
    """It is long: no DAG file pays for it."""
    loading = [
        module.path
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("error_codes.catalogue")
    ]
    assert set(loading) == {"cli/errors.py"}
    code = "import sys, airflow_custody.client.errors as e; print(*(m for m in sys.modules if 'error_codes' in m))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["airflow_custody.client.error_codes"]


@pytest.mark.parametrize("entry", _ALL, ids=lambda entry: entry.code)
def test_an_entry_says_all_in_short_sentences(entry: Entry) -> None:
    assert not entry.title.endswith(".")
    for text in (entry.cause, entry.cure):
        assert text.endswith(".")
        assert 20 < len(text) < 400
        assert len(re.findall(r"[.] [A-Z']", text)) <= 4
    for name in entry.errors:
        kind = getattr(errors, name, None)
        assert kind is not None or name in ("AirflowSensorTimeout", "OutputError", "PlanChangedError")
    assert "[custody/" not in entry.message


@pytest.mark.parametrize("entry", _ALL, ids=lambda entry: entry.code)
def test_the_example_is_a_text_that_the_package_says(entry: Entry) -> None:
    """Some words of it are in a module that gives the code: whoever changes the text sees the example, too."""
    said = {
        piece
        for module in modules()
        if entry.code in module.texts or entry.code in (*_DEFAULTS, "pins-missing")
        for text in module.texts
        for piece in text.split("; ")
        if len(piece.split()) >= 2
    }
    if entry.code in ("bad-request", "conflict", "not-found", "rate-limited", "service-failed"):
        # The service's own words.
        assert re.search(r"\w+ failed: .* status [45]\d\d[,)]", entry.message)
    elif entry.code == "unexpected":
        # Those of any error.
        assert re.match(r"poll failed: \w+Error: ", entry.message)
    else:
        assert any(piece.strip(" ;:,.") in entry.message for piece in said)


@pytest.mark.parametrize("code", ["tls-untrusted", "unreachable", "wrong-scheme", "token-expired", "role-missing"])
def test_the_usual_causes_are_short(code: str) -> None:
    entry = ENTRIES[code]
    assert len(f"{entry.message} [custody/{code}]") <= _LONGEST_LINE
