"""The report: one document about a whole rollout, as HTML or JSON."""
