"""
Build the distributions, check the wheel, and write its SBOM.

The wheel is built from the working tree and from the source distribution; both must have the same bytes. Its metadata
is checked. Then it is installed into a clean environment, where Airflow must find the provider. The SBOM describes that
environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
EXAMPLES = {path.name for path in (ROOT / "example_dags").iterdir() if path.suffix in (".py", ".yaml")}

# Runs in the clean environment.
CHECK = """
import importlib, json
from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException
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
    try:
        importlib.import_module(module)
    except AirflowOptionalProviderFeatureException:
        assert module.endswith("_approval"), module
from importlib.metadata import entry_points
(plugin,) = [each for each in entry_points(group="airflow.plugins") if each.name == "custody"]
assert plugin.load().name == "custody", "Airflow does not find the plugin"
import airflow_custody, pathlib, re
assert "site-packages" in airflow_custody.__file__, airflow_custody.__file__
print(f"Airflow lists the provider, its connection type and its {len(modules)} modules")
"""
# Also runs in the clean environment. With load_examples, Airflow 3.3 imports airflow_provider_custody, and would log an
# error if there were no such module.
CHECK_EXAMPLES_ARE_NOT_LOADED = """
import airflow_provider_custody
from airflow.dag_processing.bundles.manager import DagBundlesManager

names = [bundle.name for bundle in DagBundlesManager().get_all_dag_bundles()]
assert "example_dags" in names, names
assert not [name for name in names if "custody" in name], names
"""


def main(airflow: str) -> None:
    """Build, and check the wheel against one version of Airflow."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT))
        # Build the source distribution, and a wheel from it, in another folder and at another time.
        run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
        (first,), (wheel,) = out.glob("*.whl"), DIST.glob("*.whl")
        hashes = {hashlib.sha256(each.read_bytes()).hexdigest() for each in (first, wheel)}
        assert len(hashes) == 1, f"two builds of the wheel differ: {hashes}"
        print(f"{wheel.name}: two builds, one SHA-256: {hashes.pop()}")
        run(sys.executable, "-m", "twine", "check", "--strict", *(str(each) for each in DIST.iterdir()))
        check_contents(wheel)
        # Without pip, so that the environment contains only the wheel and its requirements.
        run(sys.executable, "-m", "venv", "--without-pip", str(out / "venv"))
        python = str(out / "venv" / "bin" / "python")
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "install", "--quiet", "--no-compile", f"apache-airflow=={airflow}", str(wheel))
        run(*pip, "check", "--quiet")
        home = {"AIRFLOW_HOME": str(out / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        print(run(python, "-c", CHECK, **home).strip().splitlines()[-1])
        custody = str(out / "venv" / "bin" / "custody")
        print("console script:", run(custody, "--version").strip())
        write_sbom(python, wheel)
        check_examples(python, custody, out / "dags", home)


def write_sbom(python: str, wheel: Path) -> None:
    """Write the SBOM of an environment with the wheel and its requirements."""
    path = wheel.with_suffix(".cdx.json")
    run(
        sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--output-file", str(path), python
    )
    document = json.loads(path.read_text())
    (ours,) = (each for each in document["components"] if each["name"] == "airflow-provider-custody")
    document["components"].remove(ours)
    # The reference contains the wheel's path on this machine, and its hash. Keep only the hash.
    (reference,) = ours.pop("externalReferences")
    document["metadata"]["component"] = ours | {"hashes": reference["hashes"]}
    path.write_text(json.dumps(document, indent=1))
    found = {canonicalize_name(each["name"]) for each in document["components"]}
    missing = {"apache-airflow", "requests", "pydantic", "pyyaml"} - found
    assert not missing, f"the SBOM lacks {missing}"
    print(f"SBOM: {path.relative_to(ROOT)}, {len(found)} components")


def check_contents(wheel: Path) -> None:
    """Check the wheel's files, and that its description has no relative links."""
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    ours = ("airflow_custody/", "airflow_provider_custody-", "airflow_provider_custody.py")
    unexpected = [name for name in names if not name.startswith(ours) or "__pycache__" in name]
    assert not unexpected, f"the wheel holds {unexpected}"
    kinds = (".css", ".html", ".py", ".svg", ".typed")
    source = {str(path.relative_to(ROOT)) for path in (ROOT / "airflow_custody").rglob("*") if path.suffix in kinds}
    missing = (source | {f"airflow_custody/example_dags/{name}" for name in EXAMPLES}) - names
    assert not missing, f"the wheel lacks {missing}"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks the licence"
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    text = str(message_from_bytes(archive.read(metadata)).get_payload())
    assert text.startswith("# "), "the wheel has no description"
    links = re.findall(r"\]\((?!https?://)[^)]*", text)
    assert not links, f"the description has relative links: {links}"


def check_examples(python: str, custody: str, folder: Path, environment: dict[str, str]) -> None:
    """Copy and parse the examples; check that Airflow does not load them."""
    copied = [Path(line) for line in run(custody, "examples", "--to", str(folder)).split()]
    assert {path.name for path in copied} == EXAMPLES == {path.name for path in folder.iterdir()}, copied
    parse = "import runpy, sys\nfor path in sys.argv[1:]:\n    assert runpy.run_path(path)"
    run(python, "-c", parse, *(str(path) for path in copied if path.suffix == ".py"), **environment)
    run(python, "-c", CHECK_EXAMPLES_ARE_NOT_LOADED, **environment | {"AIRFLOW__CORE__LOAD_EXAMPLES": "True"})
    print(f"examples: {len(copied)} files, copied and parsed")


def run(*command: str, **environment: str) -> str:
    """Run a command and return its output; if it fails, exit with the end of the output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONPATH"))}
    # Run it in an empty folder, so that Python finds the installed package and not the working tree.
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(command, env=kept | environment, cwd=empty, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} ... failed\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1])
