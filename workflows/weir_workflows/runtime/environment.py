"""The environment of an agent: what it needs by name, and nothing else of its starter's.

The worker's own has the address of the metadata database with its password. The agent's is shown in /proc to whoever
has its rights, and what it starts could inherit it.
"""

from collections.abc import Mapping

_NAMES = frozenset(
    (
        *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE", "TRACEPARENT"),
        # By these `weir down` knows what belongs to an installation.
        *("WEIR_HOME", "WEIR_SERVICE"),
        *("WEIR_LOG_FORMAT", "WEIR_READ_AHEAD_PAGES", "WEIR_COMPUTE_CACHE_MIB", "WEIR_WRITE_THROUGH"),
        # Where traces go; not the headers, which may hold a key.
        *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    )
)
# Only tests set these.
_OF_TESTS = ("WEIR_TEST_", "WEIR_CRASH_")


def of_agent(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_OF_TESTS)}
