"""The package names the service, claims no affiliation and no public address, and has a version of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from lowest import read_project
from packaging.version import Version

from airflow_custody import __version__
from airflow_custody.get_provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
_ASSIGNED = re.compile(r'^[+]__version__ = "(.+)"$', re.MULTILINE)


@pytest.mark.parametrize("text", [read_project()["description"], get_provider_info()["description"]])
def test_a_summary_names_the_service_and_claims_no_affiliation(text: str) -> None:
    assert "Taurus-PROTECT" in text
    assert "ot affiliated with" in text


def test_no_link_leads_to_an_address_that_does_not_exist() -> None:
    assert "urls" not in read_project(), "once there is a public address, also use it for the links of the README"
    assert not re.search(r"https?://(?!custody\.example\.com)", str({**get_provider_info(), "connection-types": None}))


def test_the_version_is_above_each_earlier_one() -> None:
    log = ["git", "log", "--patch", "--format=", "-G__version__", "--", "airflow_custody/__init__.py"]
    try:
        done = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no history here")
    earlier = {Version(each) for each in _ASSIGNED.findall(done.stdout)} - {Version(__version__)}
    assert Version(__version__) > max(earlier, default=Version("0"))


def test_no_option_is_newer_than_the_package() -> None:
    for option in get_provider_info()["config"]["custody"]["options"].values():
        assert Version(option["version_added"]) <= Version(__version__)
