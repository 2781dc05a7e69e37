"""What Airflow's own pages show of the custody service."""
