"""Fixtures shared by the tests of backend/ and workflows/."""

from hypothesis import settings

pytest_plugins = ("weir_testing.fixtures", "weir_testing.fleet", "weir_testing.settings_of_doubles")

# The same cases in every run; `make soak` draws others.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
