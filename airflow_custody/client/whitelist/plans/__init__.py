"""Plans: what must be done so that the service has what a whitelist file says."""
