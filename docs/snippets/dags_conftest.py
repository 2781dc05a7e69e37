"""``conftest.py`` for tests of your own DAGs."""

import os
import tempfile
from pathlib import Path

import pytest

# Set these before Airflow is imported, in each process of pytest-xdist.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(Path(__file__).parent / "dags")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

pytest_plugins = ["airflow_custody.sandbox.pytest_plugin"]


@pytest.fixture(scope="session", autouse=True)
def airflow_database():
    from airflow.utils.db import initdb

    initdb()
