"""Apache Airflow provider for digital-asset custody services with the API of Taurus-PROTECT."""

from __future__ import annotations

# Older clones, which were never released, have versions up to 1.2.0. The first release must be above them, so that pip
# upgrades an installed clone.
__version__ = "2.0.0"
