"""Whitelisting requests: creating, finding, signing, rejecting and deleting them; whitelists kept as files."""
