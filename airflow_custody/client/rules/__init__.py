"""The rules that define the required signers."""
