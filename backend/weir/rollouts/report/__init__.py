"""The report: one document about a whole rollout, as a page of HTML that needs nothing else, or as JSON.

`content` gathers the report from the database alone; `charts`, `format` and `words` turn figures and settings into
text and pictures for people. This package imports the floor, `features`, `plan`, `run` and `evidence`."""
