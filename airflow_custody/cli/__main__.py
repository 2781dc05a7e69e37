"""``python -m airflow_custody.cli`` runs the console script ``custody``."""

from __future__ import annotations

import sys

from airflow_custody.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
