"""The users of the service."""
