"""The health of the service: its listing of checks, and the verdict on it."""
