"""The settings that say what is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pinned_keys import pinned, private_pem, public_pem

from airflow_custody.client import ClientSettings, CustodyClient, CustodyConfigurationError, VerificationPins

URL = "https://custody.example.com"
ONE, TWO = public_pem(1), public_pem(2)
BOTH = VerificationPins([ONE, TWO], 2).fingerprints


def parse(**values: Any) -> ClientSettings:
    return ClientSettings.parse({"base_url": URL, **values})


def pins_of(settings: ClientSettings) -> VerificationPins:
    assert settings.pins is not None
    return settings.pins


def refusal(**values: Any) -> CustodyConfigurationError:
    with pytest.raises(CustodyConfigurationError) as caught:
        parse(**values)
    return caught.value


def test_nothing_is_pinned_by_default() -> None:
    assert parse().pins is None
    with CustodyClient(URL, "t0ken") as client:
        assert client.verifier is None


@pytest.mark.parametrize(
    "keys",
    [
        ONE + TWO,
        [ONE, TWO],
        (ONE, TWO),
        f"{ONE}\n\n  {TWO}",
        # What a field of one line leaves, with and without spaces.
        (ONE + TWO).replace("\n", ""),
        (ONE + TWO).replace("\n", " "),
        (ONE + TWO).replace("\n", "\r\n"),
        # What a file of environment variables has.
        (ONE + TWO).replace("\n", "\\n"),
        [ONE.replace("\n", "\\n"), TWO],
        f"# admin 1\n{ONE}# admin 2\n{TWO}",
    ],
    ids=repr,
)
def test_keys_are_pem_texts(keys: Any) -> None:
    assert pins_of(parse(superadmin_keys=keys, superadmin_minimum="2")).fingerprints == BOTH


def test_keys_may_be_in_files(tmp_path: Path) -> None:
    both, one, two = tmp_path / "both.pem", tmp_path / "one.pem", tmp_path / "two.pem"
    both.write_text(f"\ufeff# Zoë's, then Ann's\n{ONE}{TWO}", encoding="utf-8")
    one.write_text(ONE)
    two.write_text(TWO)
    for keys in (str(both), both, [str(one), str(two)], [one, TWO]):
        assert pins_of(parse(superadmin_keys=keys, superadmin_minimum=2)).fingerprints == BOTH


def test_a_file_is_read_when_the_client_is_made(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_text(ONE + TWO)
    with CustodyClient(URL, "t0ken", superadmin_keys=str(file), superadmin_minimum=2) as client:
        file.unlink()
        assert client.verifier is not None
        assert client.verifier is client.verifier
        assert client.verifier.pins.fingerprints == BOTH
        with CustodyClient.from_settings(client.settings, client.auth) as other:
            assert pins_of(other.settings).fingerprints == BOTH


@pytest.mark.parametrize(
    "keys", [5, True, {"a": ONE}, [], [5], ["/no/such.pem"], "/no/such.pem", "junk", ONE[:60], f"{ONE}junk", ONE + ONE]
)
def test_what_is_no_key_is_refused(keys: Any) -> None:
    assert refusal(superadmin_keys=keys, superadmin_minimum=1).setting == "superadmin_keys"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.pem", tmp_path / "binary.pem"
    large.write_text("#" * (1024 * 1024 + 1))
    binary.write_bytes(b"\xff\xfe\x00")
    faults = {tmp_path / "no.pem": "No such file", large: "larger than", binary: "not PEM, but binary"}
    for path, why in faults.items():
        text = str(refusal(superadmin_keys=str(path), superadmin_minimum=1))
        assert path.name in text
        assert why in text
    folder = tmp_path / "keys.d"
    folder.mkdir()
    # Without a dot, too: no key is as short.
    for each, why in ((str(folder), "Is a directory"), ("/tmp", "Is a directory"), ("/no/such/keys", "No such file")):
        text = str(refusal(superadmin_keys=each, superadmin_minimum=1))
        assert f"is neither a public key in PEM nor a file that can be read: {each}: {why}" in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (ONE + "junk", "there is text outside of the keys"),
        (ONE + TWO[:50], "it is truncated"),
        ("".join(ONE.splitlines()[1:-1]), "it is base64 without the lines of PEM"),
        ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "it is a certificate"),
        (private_pem(1), "there is a private key"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_of_its_path(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "admins.pem"
    file.write_text(text)
    for keys in (str(file), [ONE, str(file)]):
        error = refusal(superadmin_keys=keys, superadmin_minimum=1)
        assert f"'superadmin_keys' cannot be used: {file}: {why}" in str(error)
        assert error.setting == "superadmin_keys"


@pytest.mark.parametrize("as_file", [False, True])
def test_a_private_key_is_refused_and_not_shown(tmp_path: Path, as_file: bool) -> None:
    secret = private_pem(1)
    body = "".join(secret.splitlines()[1:-1])
    for text in (secret, secret + ONE, secret.replace("\n", ""), *([] if as_file else [body])):
        file = tmp_path / "keys.pem"
        file.write_text(text)
        error = refusal(superadmin_keys=str(file) if as_file else text, superadmin_minimum=1)
        assert error.setting == "superadmin_keys"
        assert body[:20] not in str(error) + repr(error)
        assert error.__context__ is None or body[:20] not in repr(error.__context__)


@pytest.mark.parametrize("minimum", [0, -1, 3, 1.5, True, "two", [2]])
def test_how_many_must_have_signed(minimum: Any) -> None:
    assert f"not {minimum!r}" in str(refusal(superadmin_keys=[ONE, TWO], superadmin_minimum=minimum))
    error = refusal(superadmin_keys=[ONE, TWO], superadmin_minimum=minimum)
    assert error.setting == "superadmin_minimum"
    assert "superadmin_minimum" in str(error)


def test_keys_without_a_minimum_are_refused() -> None:
    for nothing in (None, ""):
        error = refusal(superadmin_keys=[ONE, TWO], superadmin_minimum=nothing)
        assert (error.setting, "is missing" in str(error)) == ("superadmin_minimum", True)


@pytest.mark.parametrize(
    "setting",
    [
        {"superadmin_minimum": 1},
        {"networks": "mainnet"},
        {"allow_legacy_signatures": "true"},
        {"rules_not_before": "2026-01-01"},
    ],
    ids=repr,
)
def test_a_part_of_what_verification_needs_is_refused(setting: dict[str, Any]) -> None:
    error = refusal(**setting)
    assert error.setting == next(iter(setting))
    assert "needs 'superadmin_keys'" in str(error)


def test_a_form_that_was_left_empty_pins_nothing() -> None:
    # Airflow 2 saves an empty box as false.
    assert parse(superadmin_keys="", superadmin_minimum=None, allow_legacy_signatures=False).pins is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("mainnet", {"mainnet"}),
        ("mainnet, testnet", {"mainnet", "testnet"}),
        (["mainnet", "testnet"], {"mainnet", "testnet"}),
        (None, None),
        ("", None),
    ],
)
def test_networks(given: Any, names: set[str] | None) -> None:
    found = pins_of(parse(**pinned(1), networks=given)).networks
    assert (None if found is None else set(found)) == names


@pytest.mark.parametrize("given", [[], ["mainnet", ""], "mainnet,", " ", [" mainnet"], 5, {"mainnet": 1}, [None]])
def test_what_names_no_networks_is_refused_and_shown(given: Any) -> None:
    error = refusal(**pinned(1), networks=given)
    assert error.setting == "networks"
    assert "comma-separated, like 'mainnet, testnet', not " in str(error)


def test_what_was_given_as_networks_is_shown_bounded() -> None:
    assert refusal(**pinned(1), networks="mainnet,").text.endswith("not ('mainnet', '')")
    assert len(str(refusal(**pinned(1), networks="x" * 5000 + ","))) < 200


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (1767225600, 1767225600),
        ("1767225600", 1767225600),
        ("2026-01-01", 1767225600),
        ("2026-01-01T00:00:00Z", 1767225600),
        (" 2026-01-01 00:00 ", 1767225600),
        ("2026-01-01T01:00:00+01:00", 1767225600),
        (None, None),
        ("", None),
    ],
)
def test_the_floor_is_a_date_or_a_unix_time(given: Any, seconds: int | None) -> None:
    assert pins_of(parse(**pinned(1), rules_not_before=given)).rules_not_before == seconds
    if given != "":
        with CustodyClient(URL, "t0ken", **pinned(1), rules_not_before=given) as client:
            assert pins_of(client.settings).rules_not_before == seconds


@pytest.mark.parametrize(
    "given",
    # A date without dashes would be a day in 1970; milliseconds, one far from now.
    [
        "20260101",
        20260101,
        1767225600000,
        0,
        -1,
        True,
        1.5,
        "soon",
        "0001-01-01",
        "9999-12-31",
        ["2026-01-01"],
        "9" * 99,
    ],
)
def test_what_is_no_date_is_refused(given: Any) -> None:
    error = refusal(**pinned(1), rules_not_before=given)
    assert error.setting == "rules_not_before"
    assert "2026-01-31" in str(error)


@given(st.text(max_size=30))
def test_no_text_breaks_the_reading_of_a_date(text: str) -> None:
    try:
        parse(**pinned(1), rules_not_before=text)
    except CustodyConfigurationError as error:
        assert error.setting == "rules_not_before"  # noqa: PT017


@pytest.mark.parametrize(("given", "allowed"), [(True, True), ("True", True), ("false", False), (None, False)])
def test_legacy_signatures(given: Any, allowed: bool) -> None:
    assert pins_of(parse(**pinned(1), allow_legacy_signatures=given)).allow_legacy_signatures is allowed
    assert refusal(**pinned(1), allow_legacy_signatures="maybe").setting == "allow_legacy_signatures"
