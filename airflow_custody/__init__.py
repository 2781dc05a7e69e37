"""Apache Airflow provider for digital-asset custody services."""

from __future__ import annotations

__version__ = "1.0.0"
