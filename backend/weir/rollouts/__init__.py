"""Rollouts: a feature carried through the fleet in waves."""
