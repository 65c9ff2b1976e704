"""Fixtures shared by the tests of backend/ and workflows/."""

pytest_plugins = ("weir_testing.fixtures", "weir_testing.fleet")
