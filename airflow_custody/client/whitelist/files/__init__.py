"""Whitelists as files: reading, formats, writing, and the addresses in them."""
