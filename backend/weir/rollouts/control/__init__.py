"""Control: pause, resume, approve, skip, abort and rollback of a rollout, delivered to its workflow."""
