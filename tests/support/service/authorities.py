"""Certificates for servers on this machine."""

from __future__ import annotations

import ssl

import trustme

#: A certificate authority, and the paths of its certificate and of a server's certificate with key.
Authority = tuple[trustme.CA, str, str]


def context_of(authority: Authority) -> ssl.SSLContext:
    """Return what a server speaks TLS with."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority[2])
    return context
