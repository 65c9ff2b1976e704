"""States of branches that are kept for as long as somebody wants them, and the schedules that take them."""
