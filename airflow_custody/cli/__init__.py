"""The command line: ``custody``, and ``airflow custody`` where Airflow takes commands from providers."""
