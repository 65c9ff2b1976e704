"""Runs: how far the computes of a rollout are, as the API shows them."""
