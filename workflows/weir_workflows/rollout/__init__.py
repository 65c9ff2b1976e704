"""Rollouts: waves, gates, windows, verdicts."""
