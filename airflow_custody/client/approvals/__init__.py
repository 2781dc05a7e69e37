"""Counts of all items that are pending approval."""
