"""Control: the orders that people give to a rollout, and the dispatch of its workflows.

`delivery` sends pause, resume, approve, skip, abort and rollback to the rollout's workflow and waits for its answer;
`dispatch` starts the workflows of new rollouts and starts lost ones again. This package imports the floor, `plan` and
`run`."""
