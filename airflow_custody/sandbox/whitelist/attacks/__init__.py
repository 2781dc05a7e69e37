"""The attacks of a malicious service, by which the sandbox can be ordered to lie."""
