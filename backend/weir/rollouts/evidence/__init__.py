"""Evidence: what was measured of a rollout's computes before and after their switch."""
