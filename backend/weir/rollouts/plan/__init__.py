"""Plans: which computes a rollout takes, in which wave, and which computes it leaves out and why."""
