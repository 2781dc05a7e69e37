"""The plugin's pages about the custody service, within Airflow's own."""
