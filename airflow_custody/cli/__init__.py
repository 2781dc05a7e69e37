"""The command line: ``custody``, and ``airflow custody`` on Airflow 3.2 and later."""
