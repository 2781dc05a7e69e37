"""
Check addresses against the rules of their chains.

Funds that are sent to a mistyped address are lost. The verdict is ``valid`` if the address follows its chain's rules,
and ``invalid`` if it cannot be an address of the chain. It is ``unchecked`` in all other cases: for example, the table
:data:`FORMS` does not contain the chain, or has no decoder for the address's form. Only ``invalid`` is a reason to
stop. A valid address may still be the wrong address, or one for which no key exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from airflow_custody.client.text import ascii_lower, is_decimal, read_number, sanitize
from airflow_custody.client.whitelist.addresses import decoders

AddressVerdict = Literal["valid", "invalid", "unchecked"]

#: Maximum length of an address in characters. Real addresses are much shorter.
MAX_ADDRESS_LENGTH = 256


@dataclass(frozen=True)
class AddressCheck:
    """
    The result of checking an address.

    :param verdict: ``valid``, ``invalid`` or ``unchecked``.
    :param reason: why the address is invalid. Default empty: the address is not invalid.
    """

    verdict: AddressVerdict
    reason: str = ""


# --- chains and networks -----------------------------------------------------------------------------------

# The separators that are ignored in names. Ignoring other characters could make two different names equal.
_WITHOUT_SEPARATORS = str.maketrans("", "", " -_.:/()")
# Names of main networks, in lower case and without separators. The name of the chain may precede them, as in
# "ethereummainnet".
_MAIN_NETWORKS = ("main", "mainnet", "mainnetbeta", "live", "livenet", "prod", "production", "public", "pubnet")
# Names for any test network. If a chain has several test networks, such a name does not identify one of them.
_TEST_NETWORKS = ("test", "testnet")
# The names of each chain, in lower case and without separators. The first one is the canonical name.
_CHAINS = (
    "btc bitcoin xbt",
    "bch bitcoincash",
    "ltc litecoin",
    "doge dogecoin",
    "eth ethereum",
    "polygon matic pol",
    "ftm fantom",
    "sonic s",
    "avalanchec avalanche avax avaxc avaxcchain avalanchecchain",
    "xrp xrpl ripple xrpledger",
    "xlm stellar",
    "xtz tezos",
    "ada cardano",
    "dot polkadot",
    "tao bittensor",
    "algo algorand",
    "sol solana",
    "cosmos atom cosmoshub",
    "near nearprotocol",
    "icp internetcomputer dfinity",
    "hedera hbar hederahashgraph",
    "mina minaprotocol",
    "filecoin fil",
    "tron trx",
)
#: Maps every alias of a chain to its canonical name.
CHAIN_NAMES = {name: names.split()[0] for names in _CHAINS for name in names.split()}
# The public networks of each chain, in lower case and without separators. The first name of a network is its canonical
# name. The usual names of the main network are left out, and "testnet" is only listed if it identifies one network of
# the chain.
_NETWORKS: Mapping[str, tuple[str, ...]] = {
    "btc": ("testnet3 testnet test", "testnet4", "signet", "regtest"),
    "bch": ("testnet3 testnet test", "testnet4", "chipnet", "scalenet", "regtest"),
    "ltc": ("testnet testnet4 test", "regtest"),
    "doge": ("testnet test", "regtest"),
    "eth": ("sepolia", "hoodi", "holesky", "goerli"),
    "polygon": ("amoy", "mumbai"),
    "sonic": ("blaze",),
    "avalanchec": ("fuji",),
    "xrp": ("testnet altnet test", "devnet"),
    "xlm": ("testnet test", "futurenet"),
    "xtz": ("ghostnet", "shadownet"),
    "ada": ("preprod", "preview", "sanchonet"),
    "dot": ("westend", "paseo", "rococo"),
    "tao": ("mainnet finney",),
    "algo": ("testnet test", "betanet"),
    "sol": ("testnet test", "devnet"),
    "cosmos": ("mainnet cosmoshub4",),
    "icp": ("mainnet ic",),
    "hedera": ("testnet test", "previewnet"),
    "mina": ("devnet",),
    "filecoin": ("calibration calibrationnet calibnet", "butterfly butterflynet"),
    "tron": ("nile", "shasta"),
}
# Maps every alias of a network to its canonical name, for each chain.
_NETWORK_NAMES = {
    chain: {name: names.split()[0] for names in networks for name in names.split()}
    for chain, networks in _NETWORKS.items()
}


@lru_cache(maxsize=4096)
def chain_name(chain: str) -> str:
    """
    Return the canonical name of a chain.

    For an unknown chain, this is its symbol in lower case.
    """
    return CHAIN_NAMES.get(_letters(chain)) or ascii_lower(chain)


@lru_cache(maxsize=4096)
def network_name(network: str, chain: str) -> str:
    """
    Return the canonical name of a network.

    For an unknown network, this is its name in lower case.

    The name of a chain also stands for its main network, ``mainnet``. ``testnet`` may be any test network of a chain,
    unless one of them has this name.
    """
    letters, known = _letters(network), chain_name(chain)
    if chain_name(network) == known:
        return "mainnet"
    prefixes = [_letters(chain), *(each for each, other in CHAIN_NAMES.items() if other == known)]
    bare = {letters, *(letters.removeprefix(each) for each in prefixes)}
    if bare.intersection(_MAIN_NETWORKS):
        return "mainnet"
    names = _NETWORK_NAMES.get(known, {})
    found = next((names[each] for each in sorted(bare) if each in names), None)
    return found or ("testnet" if bare.intersection(_TEST_NETWORKS) else ascii_lower(network))


def are_two_networks(one: str, other: str, chain: str) -> bool:
    """
    Tell whether two names certainly stand for two different networks.

    An unknown name may stand for any network.

    :param one: a canonical name, from :func:`network_name`.
    :param other: another canonical name.
    :param chain: canonical name of the chain, from :func:`chain_name`.
    """
    names = {one, other}
    known = {"mainnet", *_NETWORK_NAMES.get(chain, {}).values()}
    return len(names) == 2 and (names <= known or names == {"mainnet", "testnet"})


def _letters(name: str) -> str:
    return ascii_lower(name).translate(_WITHOUT_SEPARATORS)


# --- the table ---------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """
    A form of the addresses of a chain.

    :param pattern: regular expression that must match the whole address.
    :param decode: decoder of the addresses. Default None: addresses of this form are unchecked.
    :param prefixes: the prefixes of the main network, in the form that the decoder returns. Addresses with any other
        prefix belong to a test network or another chain. Default: the empty prefix, for decoders that return none.
    :param fault: why an address that the decoder refuses is invalid. Default: a text about checksum and length.
    :param canonical: function that maps all spellings of an address to one text. It raises ``ValueError`` for an
        address with a wrong checksum. Default None: an address has only one spelling.
    """

    pattern: str
    decode: decoders.Decoder | None = None
    prefixes: tuple[str, ...] = ("",)
    fault: str = "its checksum does not match, or a character or its length is wrong"
    canonical: Callable[[str], str] | None = None


_B58 = "[1-9A-HJ-NP-Za-km-z]"
_EVM = (
    Form("0x([0-9a-f]{40}|[0-9A-F]{40})", decoders.accept),
    Form(
        "0x[0-9a-fA-F]{40}",
        decoders.eip55,
        fault="upper and lower case do not match the EIP-55 checksum, so at least one character is wrong",
    ),
    # Addresses without 0x, or with 0X.
    Form("(0X)?[0-9a-fA-F]{40}", canonical=lambda address: "0x" + address[-40:].lower()),
    # The public key of a validator, or an address in the ICAP format.
    Form("0x[0-9a-fA-F]{96}|XE[0-9]{2}[0-9A-Z]{30,31}"),
)
# The prefixes of the test networks of all chains.
_TEST_PREFIX = re.compile("6f|c4|71|3a|a0|0493|tb|bcrt|[tr]ltc|bchtest|bchreg|(addr|stake)_test")
_SUBSTRATE = (
    # A key in hexadecimal, which has no checksum, or an account index.
    Form(f"0x([0-9a-fA-F]{{64}}|[0-9a-fA-F]{{40}})|{_B58}{{3,25}}"),
)

#: The forms of addresses, by canonical name of the chain. The first form that matches counts.
FORMS: Mapping[str, tuple[Form, ...]] = {
    "btc": (
        Form("(?i)(bc|tb|bcrt)1.+", decoders.segwit, ("bc",), canonical=str.lower),
        # Addresses for silent payments.
        Form("(?i)t?sp1.+", canonical=str.lower),
        Form(f"{_B58}+", decoders.base58_check, ("00", "05")),
    ),
    "bch": (
        Form(
            "(?i)([a-z]+:)?[02-9ac-hj-np-z]{40,}",
            decoders.cashaddr,
            ("bitcoincash",),
            # The prefix can be dropped, because the checksum covers it.
            canonical=lambda address: address.lower().rpartition(":")[2],
        ),
        # The last two prefixes are from BitPay's former format.
        Form(
            f"{_B58}+",
            decoders.base58_check,
            ("00", "05", "1c", "28"),
            canonical=decoders.legacy_to_cashaddr,
        ),
    ),
    "ltc": (
        Form("(?i)(ltc|tltc|rltc)1.+", decoders.segwit, ("ltc",), canonical=str.lower),
        Form("(?i)(t?ltcmweb|tmweb)1.+", canonical=str.lower),
        # 05 is Bitcoin's prefix, which Litecoin used before 32.
        Form(f"{_B58}+", decoders.base58_check, ("30", "32", "05"), canonical=decoders.litecoin_script),
    ),
    "doge": (Form(f"{_B58}+", decoders.base58_check, ("1e", "16")),),
    "eth": _EVM,
    "polygon": _EVM,
    "ftm": _EVM,
    "sonic": _EVM,
    # Accounts on Avalanche's other chains, and ids of nodes.
    "avalanchec": (*_EVM, Form("([CXP]|NodeID)-.+")),
    "xrp": (
        Form(f"r{_B58}+", partial(decoders.base58_check, is_ripple=True), ("00",)),
        # X-addresses, which may contain a tag.
        Form(
            f"[XT]{_B58}+",
            decoders.x_address,
            ("0544",),
            fault="its checksum does not match, or a character, its length or its tag is wrong",
        ),
    ),
    "xlm": (
        # Stellar's text keys (strkeys). Those with a prefix other than G, C or M do not identify an account.
        Form("[GC][A-D][A-Z2-7]{54}|M[A-D][A-Z2-7]{67}|[TXPLB][A-Z2-7]+", decoders.strkey, ("G", "C", "M")),
        Form(
            "S[A-Z2-7]{55}",
            decoders.refuse,
            fault="it is the secret key of an account, so anyone who has seen it can spend from the account",
        ),
        # Federated names, which only their domain can resolve.
        Form(".+[*].+"),
    ),
    "xtz": (
        Form(
            f"(tz[1-4]|KT1){_B58}+",
            partial(decoders.base58_check, prefix=3),
            ("06a19f", "06a1a1", "06a1a4", "06a1a6", "025a79"),
        ),
        # Rollups, blinded keys, and entrypoints of contracts.
        Form("(sr1|btz1).+|[^%]+%.+"),
    ),
    "ada": (
        Form("(?i)(addr|stake)(_test)?1.+", decoders.bech32, ("addr", "stake"), canonical=str.lower),
        Form(f"(Ae2|DdzFF){_B58}+", decoders.byron),
        # Ids of pools and representatives; and addresses that have no checksum, or are on a test network.
        Form(f"(pool|drep)1.+|[0-9a-fA-F]{{56,}}|{_B58}{{50,}}"),
    ),
    "dot": (*_SUBSTRATE, Form(f"{_B58}{{35,50}}", partial(decoders.ss58, network=0))),
    "tao": (*_SUBSTRATE, Form(f"{_B58}{{35,50}}", partial(decoders.ss58, network=42))),
    "algo": (Form("[A-Z2-7]{58}", decoders.algorand),),
    # Any 32 bytes are accepted, because addresses of programs are not points on the curve.
    "sol": (Form(f"{_B58}{{32,44}}", partial(decoders.plain_base58, size=32)),),
    "cosmos": (Form("(?i)[a-z0-9]+1.+", decoders.bech32, ("cosmos", "cosmosvaloper"), canonical=str.lower),),
    "icp": (
        Form("[0-9a-fA-F]{64}|([a-z2-7]{5}-)+[a-z2-7]{1,5}", decoders.internet_computer, canonical=str.lower),
        # Addresses with a subaccount (ICRC-1), or not in lower case.
        Form("(?i)([a-z2-7]+-)+[a-z2-7]+[.][0-9a-f]+|([a-z2-7]{5}-)+[a-z2-7]{1,5}", canonical=str.lower),
    ),
    "mina": (Form(f"B62{_B58}+", partial(decoders.base58_check, prefix=3), ("cb0101",)),),
    "filecoin": (
        Form("f[12][a-z2-7]{39}|f3[a-z2-7]{84}", decoders.filecoin),
        # Account numbers, addresses of contracts or on test networks, and addresses in Ethereum's form.
        Form("f0[0-9]+|f4[0-9]+f[a-z2-7]+|t[0-4].+|0x[0-9a-fA-F]{40}"),
    ),
    # Account ids. Their checksum (HIP-15) depends on the ledger, so it is not checked.
    "hedera": (
        Form("[0-9]+[.][0-9]+[.][0-9]+(-[A-Za-z]{5})?", canonical=lambda address: address.partition("-")[0]),
        Form(".+"),
    ),
    "tron": (
        # Addresses in hexadecimal, which have no checksum.
        Form("(0x)?41[0-9a-fA-F]{40}", canonical=decoders.tron_base58),
        Form(f"{_B58}+", decoders.base58_check, ("41",)),
    ),
}

#: The canonical name of Ethereum.
ETH = "eth"
#: The chains with Ethereum's form of addresses. A service may name such a chain as the chain, or as a network of
#: ``ETH``.
EVM_CHAINS = tuple(chain for chain, forms in FORMS.items() if forms[: len(_EVM)] == _EVM)


@lru_cache(maxsize=4096)
def read_evm_network(network: str) -> tuple[str, str] | None:
    """
    Return the chain and the network that are meant if a network is named on the chain ``ETH``.

    For example, ``polygon`` means the main network of Polygon, and ``sepolia`` a test network of Ethereum itself.

    :param network: the canonical name of the network, from :func:`network_name`.
    :return: the canonical names of chain and network. None if the name is unknown; it may mean any network of any chain
        in :data:`EVM_CHAINS`.
    """
    # Ethereum is the first of these chains, so "mainnet" and "testnet" mean Ethereum's own networks.
    for chain in EVM_CHAINS:
        name = network_name(network, chain)
        if name in ("mainnet", "testnet", *_NETWORK_NAMES.get(chain, {}).values()):
            return chain, name
    return None


# --- one address in several spellings -----------------------------------------------------------------------

_HEXADECIMAL = re.compile("0[xX][0-9a-fA-F]+")
# Maximum length of an address that is converted. No chain in the table has longer addresses, and longer texts could be
# slow to match.
_MAX_ADDRESS = 512
# A destination tag has 32 bits.
_MAX_TAG = 2**32 - 1


class Place(NamedTuple):
    """
    An address and its memo in canonical form.

    :param address: the address.
    :param memo: the memo; empty if there is none.
    :param is_case_known: whether an address that differs from this one only in case is certainly a different address.
        False if this is unknown, because the table lacks the chain or the form.
    """

    address: str
    memo: str
    is_case_known: bool


def canonical_place(address: str, memo: str | None, chain: str, network: str | None) -> Place:
    """
    Return an address and its memo in canonical form.

    An X-address of the XRP Ledger becomes the classic address of its account, and the tag in it becomes the memo. It
    stays unchanged if its tag contradicts the memo, or if it belongs to a test network and ``network`` does not name a
    test network.

    :param address: the address.
    :param memo: the memo; None or empty: there is none.
    :param chain: canonical name of the chain, from :func:`chain_name`.
    :param network: name of the network; None or empty: not given.
    """
    memo = memo or ""
    if len(address) > _MAX_ADDRESS or not address.isascii():
        # The table has no form for such an address, so keep it unchanged.
        return Place(address, memo, False)
    form = _form_of(address, chain)
    if form is not None and form.canonical is not None:
        try:
            return Place(form.canonical(address), memo, True)
        except ValueError:
            return Place(address, memo, True)
    if _HEXADECIMAL.fullmatch(address):
        return Place(address.lower(), memo, True)
    x_address = _read_x_address(address, chain)
    if x_address is not None and memo in ("", x_address.tag or memo):
        name = network_name(network, chain) if network else "mainnet"
        if name != "mainnet" or not _TEST_PREFIX.fullmatch(x_address.prefix):
            return Place(x_address.account, x_address.tag or memo, True)
    return Place(address, memo, form is not None and form.decode is not None)


def spellings(address: str, memo: str | None, chain: str) -> list[str]:
    """
    Return the spellings under which a service may list an address.

    They are needed because the service's search by address may only find the exact text. On chains where case matters,
    some of these spellings may be different addresses.

    :param address: the address.
    :param memo: the memo, which an X-address may contain; None: there is none.
    :param chain: symbol or name of the chain.
    """
    chain = chain_name(chain)
    # "any" is not a name of the main network, so that X-addresses of all networks are read.
    canonical, memo, _ = canonical_place(address, memo, chain, "any")
    found = [address, canonical, canonical.lower(), canonical.upper(), canonical.upper().replace("0X", "0x", 1)]
    if chain in EVM_CHAINS and len(canonical) == 42:
        found.append(decoders.in_eip55(canonical))
    with suppress(ValueError):
        if chain == "xrp":
            tags = {"", memo if read_number(memo, _MAX_TAG) is not None else ""}
            found += [each for tag in sorted(tags) for each in decoders.x_addresses(canonical, tag)]
        elif chain == "ltc":
            found.append(decoders.litecoin_former(canonical))
        elif chain == "bch":
            found += [f"{decoders.cashaddr(canonical)}:{canonical}", *decoders.cashaddr_to_legacy(canonical)]
        elif chain == "tron":
            hexadecimal = decoders.tron_hexadecimal(canonical)
            found += [hexadecimal, f"0x{hexadecimal}"]
    return list(dict.fromkeys(found))


def _read_x_address(address: str, chain: str) -> decoders.XAddress | None:
    """Return a valid X-address of the XRP Ledger; None for any other address."""
    if chain != "xrp" or address[:1] not in ("X", "T"):
        return None
    with suppress(ValueError):
        return decoders.read_x_address(address)
    return None


def memo_fault(address: str, memo: str | None, chain: str) -> str:
    """
    Return why an address cannot have this memo; empty if it can, or if this is unknown.

    :param address: the address.
    :param memo: the memo; None or empty: there is none.
    :param chain: symbol or name of the chain.
    """
    if not memo or chain_name(chain) != "xrp":
        return ""
    number = read_number(memo, _MAX_TAG)
    if number is None or memo != str(number):
        shown = repr(sanitize(memo, 40))
        return f"memo {shown} is not a destination tag of XRP: a whole number from 0 to {_MAX_TAG}, such as 12"
    return tag_fault(address, memo, chain)


def tag_fault(address: str, memo: str | None, chain: str) -> str:
    """
    Return how a memo contradicts the tag in an X-address; empty if it does not.

    Same parameters as :func:`memo_fault`.
    """
    x_address = _read_x_address(address, chain_name(chain)) if memo else None
    if x_address is None or x_address.tag in ("", memo):
        return ""
    return (
        f"memo {sanitize(memo, 40)!r} is not the tag {x_address.tag} that the X-address contains: correct one of them"
    )


# --- the check ---------------------------------------------------------------------------------------------


def check_address(address: str, chain: str, network: str | None = None) -> AddressCheck:
    """
    Check an address against the known rules of its chain.

    :param address: the address, exactly as it will be sent.
    :param chain: symbol or name of the chain, in any case.
    :param network: name of the chain's network. The vendor does not publish these names. Therefore addresses of test
        networks are valid for any network that is not clearly the main network, and are unchecked if no network is
        given. Default None: no network is given.
    :return: the verdict and its reason. The reason does not contain any part of the address.
    """
    # A number of up to seven digits may be the id of a validator or of a pool.
    is_id = is_decimal(address) and len(address) <= 7
    if is_id or chain_name(chain) not in FORMS:
        return AddressCheck("unchecked")
    if fault := _character_fault(address):
        return AddressCheck("invalid", fault)
    form = _form_of(address, chain_name(chain))
    if form is None:
        return AddressCheck("invalid", f"not in any {sanitize(chain, 40)} address format")
    if form.decode is None:
        return AddressCheck("unchecked")
    try:
        prefix = form.decode(address)
    except ValueError:
        return AddressCheck("invalid", form.fault)
    except (ImportError, OSError):
        # A library that the decoder needs is not installed, or cannot be loaded.
        raise
    except Exception:
        # An uncertain form or a bug in a decoder must not make an address invalid.
        return AddressCheck("unchecked")
    return _check_prefix(prefix, form.prefixes, chain, network)


def _form_of(address: str, chain: str) -> Form | None:
    return next((each for each in FORMS.get(chain, ()) if re.fullmatch(each.pattern, address)), None)


def _check_prefix(prefix: str, main_prefixes: tuple[str, ...], chain: str, network: str | None) -> AddressCheck:
    """Return the verdict on an address with a correct checksum, by its prefix."""
    network = (network or "").strip()
    is_test = bool(_TEST_PREFIX.fullmatch(prefix))
    is_other = bool(network) and network_name(network, chain) != "mainnet"
    if prefix in main_prefixes or (is_test and is_other):
        return AddressCheck("valid")
    # A network other than the main one may have prefixes that are not in the table.
    if is_other or (is_test and not network):
        return AddressCheck("unchecked")
    why = "it is an address of a test network"
    return AddressCheck(
        "invalid", why if is_test else "it is well-formed, but its prefix belongs to another chain or kind"
    )


def _character_fault(address: str) -> str:
    """
    Return why a text cannot be an address on any chain; empty if it may be one.
    """
    if len(address) > MAX_ADDRESS_LENGTH:
        return f"it has more than {MAX_ADDRESS_LENGTH} characters"
    # Addresses have no spaces, and only ASCII characters.
    if found := re.search("[^!-~]", address):
        return f"its character {found.start() + 1} is U+{ord(found[0]):04X}, which addresses never contain"
    return ""


def shorten(address: str) -> str:
    """Return the beginning and the end of a long address, for logs."""
    return address if len(address) <= 16 else f"{address[:8]}…{address[-6:]}"
