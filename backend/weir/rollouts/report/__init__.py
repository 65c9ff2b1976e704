"""The report: one document about a whole rollout, as a page of HTML that needs nothing else, or as JSON.

`content` gathers it from the database alone; `charts`, `format` and `words` turn figures and settings into something
a person reads. This room imports the floor, `features`, `plan`, `run` and `evidence`."""
