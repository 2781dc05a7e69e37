"""Build the wheel, install it into a clean environment, and check there that Airflow finds the provider."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Runs in the clean environment.
CHECK = """
import importlib, json
from airflow.providers_manager import ProvidersManager
from airflow_custody.get_provider_info import get_provider_info

manager = ProvidersManager()
assert "airflow-provider-custody" in manager.providers, "Airflow does not list the provider"
hook = manager.hooks["custody"]
assert hook is not None and hook.hook_name == "Custody", "Airflow does not know the connection type"
info = get_provider_info()
modules = [
    module
    for kind in ("hooks", "operators", "sensors", "triggers")
    for entry in info[kind]
    for module in entry["python-modules"]
]
for module in modules:
    importlib.import_module(module)
from importlib.metadata import entry_points
(plugin,) = [each for each in entry_points(group="airflow.plugins") if each.name == "custody"]
assert plugin.load().name == "custody", "Airflow does not find the plugin"
import airflow_custody, pathlib
assert "site-packages" in airflow_custody.__file__, airflow_custody.__file__
print(f"Airflow lists the provider, its connection type and its {len(modules)} modules")
"""


def main(airflow: str) -> None:
    """Check one wheel against one version of Airflow."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT))
        (wheel,) = out.glob("*.whl")
        check_contents(wheel)
        run(sys.executable, "-m", "venv", str(out / "venv"))
        python = str(out / "venv" / "bin" / "python")
        run(python, "-m", "pip", "install", "--quiet", f"apache-airflow=={airflow}", str(wheel))
        run(python, "-m", "pip", "check", "--quiet")
        home = {"AIRFLOW_HOME": str(out / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        print(run(python, "-c", CHECK, **home).strip().splitlines()[-1])
        print("console script:", run(str(out / "venv" / "bin" / "custody"), "--version").strip())


def check_contents(wheel: Path) -> None:
    """Refuse a wheel that holds too much or too little."""
    names = zipfile.ZipFile(wheel).namelist()
    unexpected = [name for name in names if not name.startswith(("airflow_custody/", "airflow_provider_custody-"))]
    assert not unexpected, f"the wheel holds {unexpected}"
    source = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "airflow_custody").rglob("*")
        if path.suffix in (".css", ".html", ".py", ".svg", ".typed")
    }
    missing = source - set(names)
    assert not missing, f"the wheel lacks {missing}"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks the licence"


def run(*command: str, **environment: str) -> str:
    """Run a command and return its output; if it fails, exit with the end of the output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONPATH"))}
    # Outside the project: the package in the working folder must not be found instead of the installed one.
    done = subprocess.run(
        command, env=kept | environment, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ... failed\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1])
