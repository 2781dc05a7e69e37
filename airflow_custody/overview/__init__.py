"""An overview of a service, for the page and the command line."""

from airflow_custody.overview.read import for_people, read_overview
from airflow_custody.overview.request import read_request, read_requests

__all__ = ["for_people", "read_overview", "read_request", "read_requests"]
