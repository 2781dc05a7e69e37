"""Settings that are words: the status words of an installation, and the accepted fields."""

from __future__ import annotations

from typing import Any

import pytest
from support.whitelist.whitelist_plans import settings_of

from airflow_custody.client import ClientSettings
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.whitelist.status_words import EFFECTIVE_STATUSES, REJECTED_STATUSES

NAMES = ("effective_statuses", "rejected_statuses", "accept_fields")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Live", ("Live",)),
        (" Live ,on hold,\n", ("Live", "on hold")),
        (["Live", " on hold ", "Live"], ("Live", "on hold")),
        (("Live",), ("Live",)),
        # The setting has no value.
        *((nothing, ()) for nothing in (None, "", " , ", [], [""])),
    ],
    ids=repr,
)
def test_words_are_a_list_or_separated_by_commas(name: str, value: Any, words: tuple[str, ...]) -> None:
    for settings in (settings_of(**{name: value}), ClientSettings.parse({"base_url": "https://x.test", name: value})):
        assert getattr(settings, name) == words


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [True, ["a", None], {"a": 1}, '["Live"]'], ids=repr)
def test_a_value_that_is_not_words_is_refused(name: str, value: Any) -> None:
    with pytest.raises(CustodyConfigurationError, match=f"'{name}' must be a list of words") as caught:
        settings_of(**{name: value})
    assert caught.value.setting == name


def test_words_that_are_not_set_are_the_default() -> None:
    words = settings_of(effective_statuses="", rejected_statuses=None).status_words
    assert (words.effective, words.rejected) == (EFFECTIVE_STATUSES, REJECTED_STATUSES)
    words = settings_of(effective_statuses="ACTIVE", rejected_statuses=["Void"]).status_words
    assert [words.meaning(each) for each in ("active", "approved", "VOID", "rejected", "", None)] == [
        *("effective", "unknown", "rejected"),
        *["unknown"] * 3,
    ]


@pytest.mark.parametrize(
    "settings", [{"effective_statuses": "live, EXPIRED"}, {"rejected_statuses": "Approved"}], ids=str
)
def test_a_word_with_two_meanings_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(CustodyConfigurationError, match="which is in 'rejected_statuses', or in its default") as caught:
        settings_of(**settings)
    assert caught.value.setting == "effective_statuses"
