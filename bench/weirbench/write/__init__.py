"""`make bench-write`: what writing costs on Weir beside what a user would have instead of it."""
