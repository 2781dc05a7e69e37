"""``make matrix``: try the wheel on each pair of Python and Airflow."""
