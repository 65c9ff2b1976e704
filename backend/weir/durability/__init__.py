"""What an acknowledged commit survives: levels, the policy that forbids weak ones, what computes are given."""
