"""One workflow per kind of operation."""
