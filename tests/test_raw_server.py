"""A test fails with the reason that its server has, not with what the client makes of it."""

from __future__ import annotations

import socket
import time

import pytest
from raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")


def test_what_the_function_raises_is_raised() -> None:
    def respond(stream: socket.socket) -> None:
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n")
        raise AssertionError("the reason")

    with (
        pytest.raises(AssertionError, match="the reason"),
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken") as client,
    ):
        client.create_whitelist_request(REQUEST)


def test_it_is_raised_also_if_the_test_is_content_with_what_the_client_makes_of_it() -> None:
    def respond(stream: socket.socket) -> None:
        raise FileNotFoundError("the reason")

    with (
        pytest.raises(FileNotFoundError, match="the reason"),
        raw_server(respond) as (url, _),
        CustodyClient(url, "t0ken") as client,
        pytest.raises(CustodyError),
    ):
        client.create_whitelist_request(REQUEST)


def test_a_client_that_breaks_off_is_no_fault_of_the_test() -> None:
    def respond(stream: socket.socket) -> None:
        while stream.recv(65536):
            pass
        raise ConnectionResetError

    with raw_server(respond) as (url, received):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(b"x")
            # The end of the block closes the listener, and with it what was not accepted yet.
            while not received:
                time.sleep(0.01)
    assert received == [b"x"]


def test_a_response_arrives_though_the_request_was_not_read_to_its_end() -> None:
    body = b'{"result": {"id": "1"}}'
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with raw_server(lambda stream: stream.sendall(response)) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as stream:
            stream.sendall(b"x" * 1_000_000)
            stream.settimeout(5)
            assert stream.recv(65536, socket.MSG_WAITALL)[: len(response)] == response
