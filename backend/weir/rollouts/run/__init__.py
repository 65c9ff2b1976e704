"""Runs: the creation of rollouts, and how far a rollout, its waves and its computes are, as the API shows them.

The worker writes the rows; this room reads them. `restarts` answers the reconciler's questions about computes that a
rollout restarts. This room imports the floor, `features` and `plan`."""
