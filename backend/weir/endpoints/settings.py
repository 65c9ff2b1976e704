"""Which Postgres settings a user may choose, and which belong to Weir."""

import re
from typing import Any

from weir.errors import BadRequestError

_NAME = re.compile(r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$")
MAX_SETTINGS = 100
# Levels at which Postgres no longer logs the warning by which unconfirmed commits are counted.
_SILENT = {"error", "log", "fatal", "panic"}

# Changing one of these would break what storage, the quorum or the rollout relies on.
_OWNED = {
    "archive_command",
    "archive_library",
    "archive_mode",
    "config_file",
    "data_checksums",
    "data_directory",
    "external_pid_file",
    "fsync",
    "hba_file",
    "hot_standby",
    "ident_file",
    "lc_messages",
    "listen_addresses",
    "max_replication_slots",
    "max_slot_wal_keep_size",
    "max_wal_senders",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "restart_after_crash",
    "restore_command",
    "session_preload_libraries",
    "shared_preload_libraries",
    "synchronous_standby_names",
    "unix_socket_directories",
    "wal_consistency_checking",
    "wal_level",
    "wal_log_hints",
    "wal_sender_timeout",
    "zero_damaged_pages",
}


def check(settings: dict[str, Any]) -> dict[str, str]:
    """The settings as Postgres text, or a refusal that names the first wrong one."""
    if len(settings) > MAX_SETTINGS:
        raise BadRequestError(f"pg_settings holds {len(settings)} entries; at most {MAX_SETTINGS} are taken")
    checked: dict[str, str] = {}
    for name, value in settings.items():
        if not _NAME.match(name):
            raise BadRequestError(f"pg_settings: {name!r} is not the name of a Postgres setting")
        if name == "full_page_writes":
            raise BadRequestError(
                "pg_settings: full_page_writes is switched by rollouts, since storage must be armed first; "
                "create a rollout of image_pushdown instead"
            )
        if name in _OWNED:
            raise BadRequestError(f"pg_settings: {name} is managed by Weir and cannot be set")
        checked[name] = _text(name, value)
        if name == "log_min_messages" and checked[name].lower() in _SILENT:
            raise BadRequestError(
                f"pg_settings: log_min_messages cannot be {checked[name]}, since unconfirmed commits are counted by "
                "the warnings that Postgres logs; choose warning or a lower level"
            )
    return checked


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str) and "\x00" not in value and "\n" not in value and len(value) <= 1000:
        return value
    raise BadRequestError(f"pg_settings: the value of {name} must be a string, a number or a boolean")


_UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400, "": 1}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|d|)\s*$")
DEFAULT_CHECKPOINT_TIMEOUT = 300


def checkpoint_timeout_seconds(settings: dict[str, Any]) -> int:
    """The longest a checkpoint cycle of an endpoint with these settings takes."""
    match = _DURATION.match(str(settings.get("checkpoint_timeout", DEFAULT_CHECKPOINT_TIMEOUT)))
    if match is None:
        return DEFAULT_CHECKPOINT_TIMEOUT
    return max(1, round(float(match.group(1)) * _UNITS[match.group(2)]))
