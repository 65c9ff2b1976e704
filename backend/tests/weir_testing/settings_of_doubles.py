"""The doubles of computes are told what to do by settings that no Postgres has, and have cycles of seconds."""

from collections.abc import Generator
from dataclasses import replace

import pytest

from weir.endpoints import settings, settings_list


@pytest.fixture(scope="session", autouse=True)
def _the_list_of_the_doubles() -> Generator[None]:
    """The API takes `test.*`, and checkpoints of less than Postgres's 30 s, beside all that the list has."""
    real = settings_list.settings_list()
    majors = {
        major: {**known, "checkpoint_timeout": replace(known["checkpoint_timeout"], min=1)}
        for major, known in real.majors.items()
    }
    for_doubles = replace(real, majors=majors, own_prefixes=real.own_prefixes | {"test"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "settings_list", lambda: for_doubles)
        yield
