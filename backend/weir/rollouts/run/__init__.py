"""Runs: the creation of rollouts, and the state of a rollout, its waves and its computes, as the API shows them.

The worker writes the rows; this package reads them. `restarts` answers the reconciler's questions about computes
that a rollout restarts. This package imports the floor, `features` and `plan`."""
