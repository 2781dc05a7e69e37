"""HTTP: one call path with its deadlines, retries and errors."""
