"""Clients of the programs that Weir drives."""
