from collections.abc import Generator

import pytest
from running import Installation, running


@pytest.fixture(scope="session")
def weir() -> Generator[Installation]:
    with running() as installation:
        yield installation
