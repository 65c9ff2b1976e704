"""The `weir` command: starts, stops and watches a whole Weir on one machine."""

from weir.cli.main import main

__all__ = ["main"]
