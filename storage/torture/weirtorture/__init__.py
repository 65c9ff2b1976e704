"""Real processes, faults by a seeded schedule, clients' histories, and checks of them."""
