"""`make torture-control`: a whole Weir whose API, worker and other services are killed while it changes branches.

The engine's own torture (`storage/torture`) has no control plane; this one has, and uses the same clients and checks.
"""
