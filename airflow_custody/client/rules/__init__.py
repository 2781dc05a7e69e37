"""The rules that say who must sign what."""
