"""Whitelisting requests: creating, finding, approving, rejecting and deleting them."""
