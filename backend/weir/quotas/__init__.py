"""Quotas: how much of everything an owner and a project may have."""
