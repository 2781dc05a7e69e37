"""The health of the service: its listing, and the verdict."""
