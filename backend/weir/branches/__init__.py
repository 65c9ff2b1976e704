"""Branches: one timeline of storage each."""
