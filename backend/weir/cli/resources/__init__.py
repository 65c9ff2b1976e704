"""The commands for what the API keeps: projects, branches, computes, roles, databases, operations, rollouts.

They know the API by HTTP alone, so that they work with a Weir on this machine and with one elsewhere. Each module may
import those named for it in `scripts/devtools/arrows.py`.
"""
