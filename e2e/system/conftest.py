"""Fixtures of the system tests: stacks, and a database with the TPROC-C schema and load."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack() -> Generator[Stack]:
    """One stack for the tests of a module, which leave it healthy."""
    with running_stack() as running:
        yield running


@pytest.fixture
def own_stack() -> Generator[Stack]:
    """A stack of the test's own."""
    with running_stack() as running:
        yield running
