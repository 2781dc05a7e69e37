"""The tenant: its currencies and its configuration."""
