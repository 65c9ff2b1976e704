"""Describing projects in the object store, and making the metadata database from it again."""
