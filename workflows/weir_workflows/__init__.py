"""Everything that takes time: Temporal workflows, their activities, and the worker."""
