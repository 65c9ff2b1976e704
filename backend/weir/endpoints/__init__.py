"""Endpoints: what people want of a compute."""
