"""The commands of the guides: each can be run as it stands there."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml
from attacks import attack

from airflow_custody.cli.main import make_parser
from airflow_custody.client import CustodyClient, CustodyVerificationError
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import METRICS
from airflow_custody.sandbox import Sandbox

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("getting-started/*.md"), *DOCS.glob("how-to/*.md")])


def commands(beginning: str) -> Iterator[str]:
    """Yield the commands of shell blocks that begin with a text."""
    for page in PAGES:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            command = ""
            for line in block.replace("\\\n", "").splitlines():
                command += line
                # A quoted value may have several lines.
                if command.count("'") % 2 == 0:
                    yield from [command] if command.startswith(beginning) else []
                    command = ""


@pytest.mark.parametrize("command", sorted(set(commands("custody "))))
def test_commands_exist(command: str) -> None:
    parser = make_parser()
    words = shlex.split(re.split(r"\s[|>#]", command)[0])
    parser.parse_args(words[1:])


def test_the_sandbox_takes_what_the_guides_send() -> None:
    sent = list(dict.fromkeys(commands("curl ")))
    assert len(sent) > 8
    with Sandbox() as sandbox:
        sandbox.control.add_signers(["alice", "bob"])
        rows = [{"label": "Treasury", "address": "0x" + "1" * 40, "blockchain": "ETH"}]
        assert sandbox.control.add_whitelist_requests(rows, signed=True) == ["3711"]
        for command in sent:
            words = shlex.split(command.replace("$SANDBOX", sandbox.url))[1:]
            url = next(word for word in words if word.startswith(sandbox.url))
            body = next((value for name, value in itertools.pairwise(words) if name == "-d"), None)
            response = requests.post(url, data=body, timeout=60)
            assert response.ok, (command, response.text)


def test_what_holds_the_keys_of_the_sandbox_is_for_its_owner_only() -> None:
    pages = [page for page in (DOCS.parent / "README.md", *PAGES) if "--with-signers |" in page.read_text()]
    assert len(pages) == 3
    safe = "\n(umask 077; python -m airflow_custody.sandbox --with-signers | tee sandbox.env)\n"
    assert all(safe in page.read_text() for page in pages)


def test_the_steps_of_verification_that_the_guide_names() -> None:
    guide = (DOCS / "how-to" / "verify-signatures.md").read_text()
    named = re.findall(r'^\| "(.+?)" \|', guide.partition("| Step that failed")[2], re.MULTILINE)
    assert len(named) == 4
    reasons: set[str] = set()
    with Sandbox() as sandbox:
        sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
        rows = [{"label": "Treasury", "address": "0x" + "1" * 40, "blockchain": "ETH"}]
        (number,) = sandbox.control.add_whitelist_requests(rows, signed=True)
        with CustodyClient(sandbox.url, sandbox.token, **sandbox.control.pins()) as client:
            assert client.verifier is not None
            for name in ("own rules", "one user repeated", "text and hash", "text"):
                attack(sandbox.control, sandbox.token, number, name)
                with pytest.raises(CustodyVerificationError) as caught:
                    client.verifier.verify(client.get_whitelist_request(number).wire)
                reasons |= {text for text in named if f": {text}" in str(caught.value)}
    assert reasons == {*named}


def test_connections_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {*get_provider_info()["connection-types"][0]["conn-fields"], "private_key"}
    found = list(commands("export AIRFLOW_CONN_CUSTODY_DEFAULT="))
    assert len(found) > 3
    for command in found:
        _, assignment = shlex.split(command)
        name, _, value = assignment.partition("=")
        monkeypatch.setenv(name, value)
        connection = CustodyHook().get_connection("custody_default")
        assert connection.host == "https://custody.example.com"
        assert connection.extra_dejson.keys() <= known, command


def test_alerts_are_on_metrics_that_there_are() -> None:
    known = {f"airflow_{each.name.replace('.', '_')}": set(each.tags) for each in METRICS}
    (group,) = yaml.safe_load((DOCS / "snippets" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        found = re.findall(r"(airflow_\w+)(?:\{(\w+))?", rule["expr"])
        assert found, rule
        for name, label in found:
            assert label in {"", *known[name]}, rule


def test_what_the_guides_make_in_a_clone_is_not_committed() -> None:
    ignored = (DOCS.parent / ".gitignore").read_text().splitlines()
    made = r"""(?:tee|-m venv|-out|> ) ?([\w.-]+\.(?:env|pem|try)|second-key\.json|\.try)|\$PWD/([a-z-]+)["\s]"""
    found: set[str] = set()
    for page in [DOCS.parent / "README.md", *PAGES]:
        for block in re.findall(r"^ *```bash\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
            found |= {first or second for first, second in re.findall(made, block)}
    assert found >= {"sandbox.env", ".try", "airflow-home", "second-key.json", "first-signer.pem"}
    missing = {name for name in found if not {f"/{name}", f"/{name}/", f"/*.{name.rpartition('.')[2]}"} & {*ignored}}
    assert missing == set()
