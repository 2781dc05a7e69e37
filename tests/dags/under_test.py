"""The DAG of the running test. Airflow 3 runs a DAG only if a file of the DAGs folder defines it."""

from __future__ import annotations

from support.airflow import airflow_runs

dag = airflow_runs.dag_under_test
