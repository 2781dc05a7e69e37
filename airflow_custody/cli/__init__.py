"""The command line: ``custody`` and, on Airflow 3.2 and later, ``airflow custody``."""
