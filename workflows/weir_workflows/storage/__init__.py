"""Timelines on the pageserver and the safekeepers."""
