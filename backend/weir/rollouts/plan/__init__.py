"""Plans: which computes a rollout takes, in which wave, and which computes it leaves out and why.

A plan is computed from the fleet as it is (`candidates`, `planner`), frozen as rows together with the rollout
(`repository`), and can be compared with a plan made later (`service`). `new_computes` says how a compute that is
created later starts. This package imports the floor (`models`, `intent`, `messages`, `visibility`) and `features`."""
