"""Certificates for local servers."""

from __future__ import annotations

import ssl

import trustme

#: A certificate authority, and the paths of its certificate and of a server's certificate with key.
Authority = tuple[trustme.CA, str, str]


def context_of(authority: Authority) -> ssl.SSLContext:
    """Return the TLS context of a server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority[2])
    return context
