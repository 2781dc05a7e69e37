"""Signing whitelisting requests."""
