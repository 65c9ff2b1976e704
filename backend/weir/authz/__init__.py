"""The only place that decides who may touch what."""
