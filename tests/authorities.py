"""Certificates for servers on this machine."""

from __future__ import annotations

import trustme

#: A certificate authority, and the paths of its certificate and of a server's certificate with key.
Authority = tuple[trustme.CA, str, str]
