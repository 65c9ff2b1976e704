"""Helpers that know nothing of any resource."""
