"""The settings that decide which keys are trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.keys.pinned_keys import pinned, private_pem, public_pem

from airflow_custody.client import ClientSettings, CustodyClient, CustodyConfigurationError, VerificationPins

URL = "https://custody.example.com"
ONE, TWO = public_pem(1), public_pem(2)
BOTH = VerificationPins([ONE, TWO], 2).fingerprints
DATE = 1767225600


def pins_of(**values: Any) -> VerificationPins | None:
    return ClientSettings.parse({"base_url": URL, **values}).pins


def refusal(**values: Any) -> CustodyConfigurationError:
    with pytest.raises(CustodyConfigurationError) as caught:
        pins_of(**values)
    return caught.value


def test_by_default_no_key_is_pinned() -> None:
    # Airflow 2 saves an empty field as false.
    assert pins_of(superadmin_keys="", superadmin_minimum=None, allow_legacy_signatures=False) is None
    with CustodyClient(URL, "t0ken") as client:
        assert client.verifier is None


@pytest.mark.parametrize(
    "keys",
    [
        ONE + TWO,
        (ONE, TWO),
        # The value is text, as in a file of environment variables.
        [ONE.replace("\n", "\\n"), TWO],
        f"# admin 1\n{ONE}# admin 2\n{TWO}",
    ],
    ids=["one text", "two texts", "escaped line ends", "with comments"],
)
def test_keys_are_pem_texts_or_files(tmp_path: Path, keys: Any) -> None:
    given = [keys]
    if isinstance(keys, str) and "BEGIN PUBLIC KEY-----\n" in keys:
        (tmp_path / "both.pem").write_text(f"\ufeff# Zoë's, then Ann's\n{keys}", encoding="utf-8")
        (tmp_path / "one.pem").write_text(ONE.replace("\n", "\\n"))
        given += [tmp_path / "both.pem", str(tmp_path / "both.pem"), [str(tmp_path / "one.pem"), TWO]]
    for each in given:
        found = pins_of(superadmin_keys=each, superadmin_minimum="2")
        assert found is not None
        assert found.fingerprints == BOTH


def test_a_file_is_read_when_the_client_is_made(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_text(ONE + TWO)
    with CustodyClient(URL, "t0ken", superadmin_keys=str(file), superadmin_minimum=2) as client:
        file.unlink()
        assert client.verifier is not None
        assert client.verifier.pins.fingerprints == BOTH
        with CustodyClient.from_settings(client.settings, client.auth) as other:
            assert other.settings.pins == client.settings.pins


@pytest.mark.parametrize(
    ("settings", "setting", "why"),
    [
        *(({"superadmin_keys": keys, "superadmin_minimum": 1}, "superadmin_keys", "") for keys in (5, "junk")),
        *(
            ({"superadmin_keys": [ONE, TWO], "superadmin_minimum": number}, "superadmin_minimum", f"not {number!r}")
            for number in (3, True, "two")
        ),
        *(
            ({"superadmin_keys": ONE, "superadmin_minimum": nothing}, "superadmin_minimum", "is missing")
            for nothing in (None, "")
        ),
        # Settings that are only a part of what verification needs. Zero and false count as given, too.
        *(
            ({setting: value}, setting, "needs 'superadmin_keys'")
            for setting, value in {
                "superadmin_minimum": 0,
                "networks": False,
                "allow_legacy_signatures": "true",
                "rules_not_before": 0,
            }.items()
        ),
        *(
            (pinned(1, networks=names), "networks", "comma-separated, like 'mainnet, testnet', not ")
            for names in (["mainnet", ""], "x" * 5000 + ",")
        ),
        # A date without dashes would be a day in 1970; milliseconds, one far from now.
        *(
            (pinned(1, rules_not_before=date), "rules_not_before", "2026-01-31")
            for date in ("20260101", DATE * 1000, True, "soon", "9999-12-31")
        ),
        (pinned(1, allow_legacy_signatures="maybe"), "allow_legacy_signatures", ""),
    ],
    ids=lambda value: str(value)[:80],
)
def test_a_wrong_pin_is_named_and_refused(settings: dict[str, Any], setting: str, why: str) -> None:
    error = refusal(**settings)
    assert error.setting == setting
    assert error.code == "setting-wrong"
    assert f"'{setting}'" in str(error)
    assert why in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        (b"\xff\xfe\x00", "it is binary, not PEM"),
        (ONE + "junk", "there is text outside of the keys"),
        (private_pem(1), "it contains a private key"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_fault_of_a_file_is_reported_with_its_path(tmp_path: Path, text: str | bytes | None, why: str) -> None:
    file = tmp_path / "admins.pem"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for keys in (str(file), [ONE, str(file)]):
        error = refusal(superadmin_keys=keys, superadmin_minimum=1)
        assert f"{file}: {why}" in str(error)
        assert error.setting == "superadmin_keys"


def test_a_private_key_is_refused_and_not_shown() -> None:
    secret = private_pem(1)
    body = "".join(secret.splitlines()[1:-1])
    for text in (secret + ONE, secret.replace("\n", ""), body, body[5:]):
        error = refusal(superadmin_keys=text, superadmin_minimum=1)
        assert error.setting == "superadmin_keys"
        assert body[5:25] not in str(error) + repr(error) + repr(error.__context__)


@pytest.mark.parametrize(
    ("settings", "attribute", "value"),
    [
        ({"networks": "mainnet, testnet"}, "networks", {"mainnet", "testnet"}),
        ({"networks": ["mainnet"]}, "networks", {"mainnet"}),
        ({"networks": ""}, "networks", None),
        *(
            ({"rules_not_before": given}, "rules_not_before", DATE)
            for given in (DATE, str(DATE), "2026-01-01", "2026-01-01T00:00:00Z", " 2026-01-01 00:00 ")
        ),
        ({"rules_not_before": "2026-01-01T01:00:00+01:00"}, "rules_not_before", DATE),
        ({"rules_not_before": ""}, "rules_not_before", None),
        ({"allow_legacy_signatures": "True"}, "allow_legacy_signatures", True),
        ({"allow_legacy_signatures": "false"}, "allow_legacy_signatures", False),
    ],
)
def test_the_other_pins(settings: dict[str, Any], attribute: str, value: object) -> None:
    found = getattr(pins_of(**pinned(1), **settings), attribute)
    assert (set(found) if isinstance(value, set) else found) == value


@given(st.text(max_size=30))
def test_every_text_is_a_date_or_refused(text: str) -> None:
    try:
        pins_of(**pinned(1), rules_not_before=text)
    except CustodyConfigurationError as error:
        assert error.setting == "rules_not_before"  # noqa: PT017
