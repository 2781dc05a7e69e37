"""Plans: the operations that make the service match a whitelist file."""
