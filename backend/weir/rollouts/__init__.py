"""Rollouts: a feature is carried through the fleet in waves, measured, judged, and rolled back where it does harm.

The packages, from the lowest layer up. A package imports only packages that stand before it in this list;
`scripts/devtools/arrows.py` checks that:

- `models`, `intent`, `messages`, `visibility`: tables, requests of people, messages between the API and the
  workflows, and which rollouts a principal may see. The docstrings of the other packages call these modules the
  floor.
- `features`: what is rolled out, and which computes can have it.
- `plan`: which computes take part, in which wave, and which are left out and why.
- `run`: the state of a rollout and of its computes.
- `control`: pause, resume, approve, skip, abort and rollback; starting the workflows.
- `evidence`: what was measured before and after each switch.
- `report`: one document about a whole rollout.
- `assembly`: the routes, and what rollouts register with packages that do not import rollouts.

The workflows that carry a rollout out are `weir_workflows.rollout`."""
