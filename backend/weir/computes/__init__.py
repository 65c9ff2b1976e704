"""Computes: what runs now and what it does."""
