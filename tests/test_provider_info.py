"""What Airflow is told of the package's documentation."""

from __future__ import annotations

from pathlib import Path

from airflow_custody.get_provider_info import get_provider_info

ROOT = Path(__file__).parent.parent


def test_the_guides_are_those_of_the_documentation() -> None:
    (integration,) = get_provider_info()["integrations"]
    named = {ROOT / guide.removeprefix("/") for guide in integration["how-to-guide"]}
    assert named == set((ROOT / "docs" / "how-to").glob("*.md"))


def test_the_module_that_airflow_looks_for_examples_in_offers_none() -> None:
    # Airflow 3.3 derives its name from the distribution's, and logs an error with load_examples if it is not there.
    import airflow_provider_custody

    assert not hasattr(airflow_provider_custody, "__path__")
