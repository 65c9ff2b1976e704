"""Evidence: what was measured of a rollout's computes before and after their switch.

`collect` counts one compute in one window, `store` keeps the counts in the database, `figures` makes rates and
percentiles of the counts, `summary` adds computes up by wave, by cell and over the fleet, and `course` draws one
compute's figures over time. The worker uses `collect` and `store`. This package imports the floor and `run`."""
