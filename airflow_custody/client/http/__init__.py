"""What is true of any HTTP service: one call path with its deadlines, retries and errors."""
