"""Addresses: destinations, checks and decoders."""
