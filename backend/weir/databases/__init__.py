"""Roles and databases of a branch."""
