"""Projects: one tenant of storage each."""
