"""Lists of what Neon has and Weir has not, which its clients ask for on their way: empty, and right."""
