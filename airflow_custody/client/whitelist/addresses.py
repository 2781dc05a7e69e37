"""
Is an address one of its chain? Nobody brings back what was sent to a mistyped one.

The verdict is ``valid`` if the address follows its chain's rules, ``invalid`` if it cannot be an address of the chain,
and ``unverifiable`` for all else: chains that are not known, forms that are not verified, a failure of the check. Only
``invalid`` is a reason to stop. Valid does not say that the address is the right one, or that anyone has its key.

The check needs the extra ``addresses``. Without it, every address is ``unverifiable``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from airflow_custody.client.text import ascii_lower, is_decimal, sanitize
from airflow_custody.client.whitelist.address_codecs import CannotTell, NotAnAddress, OtherPrefix, Rule
from airflow_custody.client.whitelist.address_rules import RULES
from airflow_custody.client.whitelist.spelling import MAIN_NETWORKS

AddressVerdict = Literal["valid", "invalid", "unverifiable"]

#: The longest text that is checked. No address comes near it.
MAX_ADDRESS_LENGTH = 256
# Digits of the ids that some chains give validators and pools.
_MAX_ID_LENGTH = 7
# Well-known addresses of each chain, one for each encoding that it uses. Before the first address of a chain is called
# invalid, these are checked: a library that refuses them is broken, or lacks an algorithm on this machine.
_EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "BTC": (
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
    ),
    "BCH": ("1BpEi6DfDAUFd7GtittLSdBeYJvcoaVggu", "bitcoincash:qpm2qsznhks23z7629mms6s4cwef74vcwvy22gdx6a"),
    "LTC": ("LMHEFMwRsQ3nHDfb9zZqynLHxjuJ2hgyyW", "ltc1qhzjptwpym9afcdjhs7jcz6fd0jma0l0rc0e5yr"),
    "DOGE": ("D7wbmbjBWG5HPkT6d4gh6SdQPp6z25vcF2",),
    **dict.fromkeys(("ETH", "Polygon", "FTM", "Sonic", "AvalancheC"), ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",)),
    "XRP": ("rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh",),
    "XLM": ("GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ",),
    "XTZ": ("tz1KqTpEZ7Yob7QbPE4Hy4Wo8fHG8LhKxZSx",),
    "ADA": (
        "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl8",
        "Ae2tdPwUPEZFRbyhz3cpfC2CumGzNkFBN2L42rcUc2yjQpEkxDbkPodpMAi",
    ),
    "DOT": ("15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5",),
    "TAO": ("5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY",),
    "ALGO": ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAY5HFKQ",),
    "SOL": ("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA",),
    "Cosmos": ("cosmos1depk54cuajgkzea6zpgkq36tnjwdzv4afc3d27",),
    "NEAR": ("alice.near",),
    "ICP": ("k2t6j-2nvnp-4zjm3-25dtz-6xhaa-c7boj-5gayf-oj3xs-i43lp-teztq-6ae",),
    "Hedera": ("0.0.123-vfmkw",),
    "Mina": ("B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy",),
    "Filecoin": ("f17uoq6tp427uzv7fztkbsnn64iwotfrristwpryy",),
    "TRON": ("TJCnKsPa7y5okkXvQAidZBzqx3QyQ6sxMW",),
}


@dataclass(frozen=True)
class AddressCheck:
    """
    What checking an address found.

    :param verdict: ``valid``, ``invalid`` or ``unverifiable``.
    :param reason: why it is invalid or cannot be verified; empty if it is valid.
    """

    verdict: AddressVerdict
    reason: str


_VALID = AddressCheck("valid", "")
#: Why nothing can be checked where the extra is not installed, and what to do about it.
MISSING_LIBRARY = "the extra 'addresses' is not installed: pip install 'airflow-provider-custody[addresses]'"


@cache
def is_installed() -> bool:
    """Tell whether the extra ``addresses`` is installed; imports nothing."""
    return importlib.util.find_spec("bip_utils") is not None


def check_address(address: str, chain: str, network: str | None = None) -> AddressCheck:
    """
    Check an address against the rules of its chain, as far as they are known.

    :param address: the address, exactly as it is to be sent.
    :param chain: symbol or name of the chain, in any case.
    :param network: name of the chain's network. Names are not published: addresses of test networks are valid wherever
        it is not clearly the main one, and are unverifiable where it is not given.
    :return: the verdict and its reason. The reason holds no part of the address but its prefix.
    """
    if not is_installed():
        return _unverifiable(MISSING_LIBRARY)
    name, rule = RULES.get(_normalize(chain), ("", None))
    if rule is None:
        return _unverifiable(f"the rules of the chain {sanitize(chain, 40)!r} are not known")
    try:
        check = _apply(rule, address, _kind_of(network, name))
    except CannotTell as error:
        return _unverifiable(str(error))
    # Whatever the library does that it should not do, an address is not wrong because of it.
    except Exception as error:
        return _unverifiable(f"the check itself failed ({type(error).__name__})")
    if check.verdict == "invalid" and not _accepts_examples(name):
        return _unverifiable(f"the check itself fails: it refuses well-known {name} addresses")
    return check


@cache
def _accepts_examples(name: str) -> bool:
    """Tell whether a chain's rule accepts what it must accept."""
    _, rule = RULES[_normalize(name)]
    try:
        return all(rule(each) in ("main", "any") for each in _EXAMPLES[name])
    except Exception:
        return False


def _apply(rule: Rule, address: str, network: Literal["main", "unnamed", "other"]) -> AddressCheck:
    fault = _fault(address)
    if fault:
        return AddressCheck("invalid", fault)
    if len(address) <= _MAX_ID_LENGTH and is_decimal(address):
        raise CannotTell("it is a number, as the ids of validators and pools are")
    try:
        form = rule(address)
    except OtherPrefix as error:
        # A network that is not known may have prefixes that are not.
        return _unverifiable(str(error)) if network == "other" else AddressCheck("invalid", str(error))
    except NotAnAddress as error:
        return AddressCheck("invalid", str(error))
    if network == "other" or form in ("main", "any"):
        return _VALID
    if form == "common":
        return _unverifiable("it is written as addresses of test networks are; the account may be the same")
    if network == "main":
        return AddressCheck("invalid", "it is an address of a test network")
    return _unverifiable("it is an address of a test network, and the network is not given")


def _fault(address: str) -> str:
    """Return what is wrong with an address on any chain; empty if nothing is."""
    if not address:
        return "it is empty"
    if len(address) > MAX_ADDRESS_LENGTH:
        return f"it has more than {MAX_ADDRESS_LENGTH} characters"
    for index, each in enumerate(address):
        # No address has spaces; and letters that look alike are the oldest trick.
        if not "!" <= each <= "~":
            return f"its character {index + 1} is U+{ord(each):04X}, which no address has"
    return ""


def _kind_of(network: str | None, chain: str) -> Literal["main", "unnamed", "other"]:
    """Return what the name of a network says."""
    name = _normalize(network or "")
    if not name:
        return "unnamed"
    bare = {name, *(name.removeprefix(each) for each, (known, _) in RULES.items() if known == chain)}
    return "main" if bare & {"", *MAIN_NETWORKS} else "other"


def _normalize(name: str) -> str:
    return "".join(filter(str.isalnum, ascii_lower(name)))


def _unverifiable(reason: str) -> AddressCheck:
    return AddressCheck("unverifiable", reason)
