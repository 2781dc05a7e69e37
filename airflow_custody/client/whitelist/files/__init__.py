"""Whitelist files: reading, formats, writing, and checks of addresses."""
