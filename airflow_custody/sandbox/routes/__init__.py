"""Serve the operations of the interface, one module for each subject."""

from __future__ import annotations
