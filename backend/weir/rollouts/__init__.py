"""Rollouts: a feature is carried through the fleet in waves, measured, judged, and taken back where it does harm.

The rooms, from the floor up. A room imports only rooms that stand before it here, and `scripts/devtools/arrows.py`
checks that:

- `models`, `intent`, `messages`, `visibility`: tables, what a person asks for, what the API and the workflows send to
  each other, and who may see which rollout.
- `features`: what is rolled out, and which computes can have it.
- `plan`: which computes take part, in which wave, and which are left out and why.
- `run`: how far a rollout and its computes are.
- `control`: pause, resume, approve, skip, abort and rollback; starting the workflows.
- `evidence`: what was measured before and after each switch.
- `report`: one document about a whole rollout.
- `assembly`: the routes, and what rollouts add to packages that know nothing of rollouts.

The workflows that carry a rollout out are `weir_workflows.rollout`."""
