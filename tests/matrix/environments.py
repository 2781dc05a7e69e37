"""Try one pair: install the wheel into a clean environment, import all of it, run tests against it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from matrix.pairs import Interpreter, Release

ROOT = Path(__file__).parent.parent.parent
# What is run of the tests: every example from end to end, one sensor in all its modes, operators, the hook, and what
# Airflow's pages know of the package. `make test` runs all there is, on fewer pairs.
TESTS = (
    "tests/e2e/test_example_dags.py",
    "tests/sensors/test_health.py",
    "tests/operators/test_health.py",
    "tests/operators/test_webhook.py",
    "tests/hooks/test_connection_form.py",
    "tests/hooks/test_custody.py",
    "tests/plugin/test_plugin.py",
    "tests/test_retry_policy.py",
)
# Each starts an Airflow of its own or waits for long, and what it shows the others show, too.
NOT_TESTED = "is_parsed_without or importing_it_imports_nothing or rate_limit_is_retried or ten_thousand"
# What the tests read beside the package, which must come from the wheel.
COPIED = ("tests", "demo", "docs", "example_dags", "pyproject.toml")
# What a release of Airflow cannot run with, although it says so nowhere: its constraints file does.
BOUNDS = {"3.0": ("fastapi<0.118", "cadwyn<6"), "3.2": ("fastapi<0.137", "svcs<26")}
# Where a dependency of the extra `addresses` has no wheel and cannot be built.
WITHOUT_ADDRESSES = ("3.14",)
UNTESTED = "imports, not tested"
# In seconds, for each step of a pair.
TIMEOUT = 3600
NOTED = ("apache-airflow-providers-common-compat", "pydantic", "requests", "urllib3")
# Modules that only an extra brings.
EXTRAS = ("bip_utils", "fastapi", "starlette", "uvicorn")

# Runs in the clean environment. The examples are DAG files, not modules to import: tests parse each.
_IMPORT = f"""
import importlib, pkgutil
import airflow.version
from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException
import airflow_custody
assert "site-packages" in airflow_custody.__file__, airflow_custody.__file__
count = 0
for module in pkgutil.walk_packages(airflow_custody.__path__, "airflow_custody."):
    if ".example_dags" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except AirflowOptionalProviderFeatureException as error:
        print("not here:", module.name, error)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        # Parts of the page need what only newer releases of Airflow have, and are left out without it.
        is_of_page = module.name.startswith("airflow_custody.plugin.") and missing.startswith("airflow.")
        if missing.split(".")[0] not in {EXTRAS!r} and not is_of_page:
            raise
        print("not here:", module.name, missing)
    count += 1
from airflow.providers_manager import ProvidersManager
assert ProvidersManager().hooks["custody"].hook_name == "Custody"
print("imported", count)
"""


@dataclass
class Result:
    """
    What came of one pair.

    :param outcome: ``passes``, ``fails``, ``imports, not tested``, ``does not import``, ``does not install``,
        ``excluded``, ``no interpreter`` or ``not tried``.
    :param reason: why, where it does not pass.
    :param tests: numbers of tests: all, skipped, failed.
    :param versions: what was installed of some dependencies.
    :param date: when it was tried.
    """

    outcome: str
    reason: str = ""
    tests: tuple[int, int, int] = (0, 0, 0)
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""


class Workshop:
    """
    Where pairs are tried, one after the other.

    :param folder: for environments, logs and copies of the tests.
    :param wheel: the wheel to try.
    :param test: whether the tests are run, too.
    """

    def __init__(self, folder: Path, wheel: Path, *, test: bool) -> None:
        self._test_too = test
        self._folder = folder
        self._wheel = wheel
        self._project = folder / "project"
        shutil.rmtree(self._project, ignore_errors=True)
        self._project.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self._project / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self._project)

    def try_pair(self, interpreter: Interpreter, release: Release) -> Result:
        """Install, import and test; stop at the first that fails."""
        name = f"{interpreter.line}-{release.line}"
        venv, log = self._folder / name, self._folder / f"{name}.log"
        log.unlink(missing_ok=True)
        python = str(venv / "bin" / "python")
        shutil.rmtree(venv, ignore_errors=True)
        try:
            self._uv(log, "venv", "--python", interpreter.path, str(venv))
            airflow = [f"apache-airflow=={release.version}", *BOUNDS.get(release.line, ())]
            done = self._uv(log, "pip", "install", "--python", python, *airflow, str(self._wheel))
            if done.returncode:
                return Result("does not install", install_reason(done.stdout))
            versions = self._versions(log, python)
            done = self._run(log, [python, "-c", _IMPORT], home=venv)
            if done.returncode:
                return Result("does not import", last_line(done.stdout), versions=versions)
            if not self._test_too:
                return Result(UNTESTED, versions=versions)
            # With the same versions of what is there already.
            addresses = interpreter.line not in WITHOUT_ADDRESSES
            extras = f"{self._wheel}[sandbox{',addresses' if addresses else ''}]"
            group = f"{ROOT / 'pyproject.toml'}:test"
            done = self._uv(log, "pip", "install", "--python", python, *airflow, extras, "--group", group)
            if done.returncode:
                return Result("does not install", f"for the tests: {install_reason(done.stdout)}", versions=versions)
            result = self._test(log, python, venv, versions)
            if not result.reason and not addresses:
                result.reason = (
                    f"Without the extra `addresses`: it cannot be installed on Python {interpreter.line} yet."
                )
            return result
        finally:
            shutil.rmtree(venv, ignore_errors=True)

    def _test(self, log: Path, python: str, venv: Path, versions: dict[str, str]) -> Result:
        report = log.with_suffix(".xml")
        report.unlink(missing_ok=True)
        command = [python, "-m", "pytest", "--numprocesses", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
        done = self._run(log, [*command, f"--junitxml={report}", "-k", f"not ({NOT_TESTED})", *TESTS], home=venv)
        tests = count_tests(report) if report.is_file() else (0, 0, 0)
        if done.returncode or not tests[0]:
            return Result("fails", failed_tests(report) or last_line(done.stdout), tests, versions)
        return Result("passes", "", tests, versions)

    def _uv(self, log: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        # pip and uv read different settings; what pip was told of certificates counts for uv, too.
        environment = {"SSL_CERT_FILE": os.environ["PIP_CERT"]} if "PIP_CERT" in os.environ else {}
        command = [str(Path(sys.executable).parent / "uv"), "--no-progress", "--color", "never", *arguments]
        return self._run(log, command, environment=environment)

    def _versions(self, log: Path, python: str) -> dict[str, str]:
        script = f"from importlib.metadata import version\nfor name in {NOTED!r}: print(name, version(name))"
        done = self._run(log, [python, "-c", script])
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(NOTED))

    def _run(
        self, log: Path, command: list[str], home: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder with the copies, and write down what it printed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
        kept.pop("VIRTUAL_ENV", None)
        if home:
            kept |= {
                "PATH": os.pathsep.join([str(home / "bin"), kept.get("PATH", os.defpath)]),
                "AIRFLOW_HOME": str(home / "airflow"),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            }
        with log.open("a+", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n")
            file.flush()
            start = file.tell()
            process = subprocess.Popen(
                command,
                cwd=self._project,
                env={**kept, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(TIMEOUT)
            except BaseException as error:
                # The processes of the tests as well.
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                file.write(f"\nnot finished after {TIMEOUT} s\n")
            file.flush()
            file.seek(start)
            return subprocess.CompletedProcess(command, code, file.read())


def count_tests(report: Path) -> tuple[int, int, int]:
    """Return the numbers of tests of a JUnit report: all, skipped, failed."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, skipped, failures, errors = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "skipped", "failures", "errors")
    )
    return total, skipped, failures + errors


def failed_tests(report: Path) -> str:
    """Return the names of the tests that failed, some of them."""
    if not report.is_file():
        return ""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    names = [
        str(case.get("name")) for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def install_reason(output: str) -> str:
    """Return what the resolver says, in one line."""
    built = re.search(r"Failed to build `?([^`\s]+)`?", output)
    if built:
        error = re.findall(r"^\s*(\w*Error: .+)$", output, re.MULTILINE)
        return f"{built[1]} cannot be built" + (f" ({error[-1].strip()})" if error else "")
    lines = [line.strip(" ×╰─▶│") for line in output.splitlines() if line.strip(" ×╰─▶│")]
    text = " ".join(lines).replace("No solution found when resolving dependencies: ", "")
    return text if len(text) <= 300 else f"{text[:300].rpartition(' ')[0]} ..."


def last_line(output: str) -> str:
    """Return the last line that says something."""
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"
