"""Accounts, API keys, console sessions and the audit log."""
