"""Deleting one request: the only command that changes anything."""

from __future__ import annotations

import io

import pytest
from cli_runs import Create, Run, read

from airflow_custody.sandbox import Sandbox

DELETE = "/whitelists/addresses/delete"


class Terminal(io.StringIO):
    """A terminal at which somebody types an answer."""

    def isatty(self) -> bool:
        return True


def deletions(sandbox: Sandbox) -> list[str]:
    return [each["path"] for each in sandbox.control.request_log() if each["method"] != "GET"]


@pytest.fixture
def delete(custody: Run) -> Run:
    return lambda *arguments, **options: custody("whitelist", "delete", *arguments, "--comment", "moved", **options)


@pytest.mark.parametrize(
    ("answer", "is_deleted"), [("y", True), ("Yes", True), ("n", False), ("", False), ("yep", False)]
)
def test_it_shows_what_it_deletes_and_asks(
    delete: Run, create: Create, sandbox: Sandbox, answer: str, is_deleted: bool
) -> None:
    identifier = create(1)
    sandbox.control.change_whitelist_request(identifier, label="Zürich\x1b[2K")
    sandbox.control.clear_request_log()
    ran = delete(identifier, stdin=Terminal(f"{answer}\n"))
    # Nothing that the service says stands in the question.
    assert ran.err.startswith(
        f"custody: label: Zürich\\u001b[2K\ncustody: chain: ETH\ncustody: address: 0x{1:040x}\n"
        f"Delete request {identifier}, in effect, at {sandbox.url}? [y/N] "
    )
    assert (ran.code, f"deleted: {'yes' if is_deleted else 'no'}" in ran.out) == (0 if is_deleted else 1, True)
    assert deletions(sandbox) == [f"/api/rest/v1{DELETE}"] * is_deleted
    assert bool(sandbox.control.whitelist_requests()) is not is_deleted
    assert ("nothing was deleted" in ran.err) is not is_deleted


def test_without_a_terminal_it_takes_yes(delete: Run, create: Create, sandbox: Sandbox) -> None:
    identifier, pending = create(1), create(2, status="pending")
    sandbox.control.clear_request_log()
    ran = delete(identifier, stdin="y\n")
    assert (ran.code, ran.out) == (1, "")
    assert "standard input is no terminal" in ran.err
    assert "Give --yes." in ran.err
    assert sandbox.control.request_log() == []
    for each, state in ((identifier, "effective"), (pending, "pending")):
        data = read(delete(each, "--yes", "-o", "json"))
        assert (data["id"], data["deleted"], data["state"], data["chain"]) == (each, True, state, "ETH")
    assert sandbox.control.whitelist_requests() == []
    (first, _) = [each for each in sandbox.control.request_log() if each["method"] == "POST"]
    assert first["body"]["comment"] == "moved"


def test_what_does_not_exist_is_nothing_to_do(delete: Run, create: Create, sandbox: Sandbox) -> None:
    create(1)
    sandbox.control.clear_request_log()
    ran = delete("9999", "--yes")
    assert (ran.code, "request 9999 does not exist: nothing to do" in ran.err) == (0, True)
    assert read(delete("9999", "--yes", "-o", "json"))["deleted"] is False
    assert deletions(sandbox) == []


def test_a_wrong_id_and_a_deletion_that_fails(delete: Run, create: Create, sandbox: Sandbox) -> None:
    assert delete("x", "--yes").code == 1
    assert delete("1", "--yes", "--comment", " ").code == 1
    sandbox.control.add_fault("status", method="POST", path="/whitelists/addresses/delete", status=409)
    ran = delete(create(1), "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert len(sandbox.control.whitelist_requests()) == 1
