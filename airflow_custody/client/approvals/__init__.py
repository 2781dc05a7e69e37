"""Counts of everything that is pending approval."""
