"""Identifiers: readable ones for people, random ones for storage."""

import re
import secrets
import uuid

ID_PATTERN = r"^[a-z0-9-]{1,60}$"
LSN_PATTERN = re.compile(r"^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$")

_ADJECTIVES = (
    "autumn", "bold", "bright", "calm", "clear", "cold", "cool", "crimson", "damp", "deep", "delicate", "dry",
    "early", "falling", "fancy", "flat", "fragrant", "frosty", "gentle", "green", "hidden", "icy", "late",
    "little", "lively", "long", "misty", "morning", "muddy", "noisy", "odd", "old", "patient", "plain",
    "polished", "proud", "quiet", "rapid", "restless", "rough", "round", "shiny", "shy", "silent", "small",
    "snowy", "soft", "solitary", "spring", "steep", "still", "summer", "sweet", "tiny", "wandering", "weathered",
    "wild", "winter", "wispy", "young",
)  # fmt: skip
_NOUNS = (
    "bank", "bay", "bend", "bridge", "brook", "canal", "cascade", "channel", "cove", "creek", "dam", "delta",
    "dew", "drift", "eddy", "estuary", "falls", "fen", "fjord", "flood", "foam", "ford", "fountain", "frost",
    "glacier", "gorge", "gulf", "harbor", "ice", "inlet", "island", "lagoon", "lake", "marsh", "meadow", "mist",
    "moor", "mouth", "ocean", "pond", "pool", "rain", "rapids", "reef", "reservoir", "rill", "river", "sea",
    "shoal", "shore", "sluice", "snow", "spring", "stream", "surf", "swamp", "tide", "valley", "water", "wave",
)  # fmt: skip
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def _words() -> str:
    return f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_NOUNS)}"


def _suffix() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def project_id() -> str:
    return f"{_words()}-{secrets.randbelow(90_000_000) + 10_000_000}"


def branch_id() -> str:
    return f"br-{_words()}-{_suffix()}"


def snapshot_id() -> str:
    return f"snap-{_words()}-{_suffix()}"


def endpoint_id() -> str:
    return f"ep-{_words()}-{_suffix()}"


def rollout_id() -> str:
    return f"ro-{_words()}-{_suffix()}"


def storage_id() -> str:
    """Tenant and timeline ids: 32 hex digits."""
    return secrets.token_hex(16)


def operation_id() -> uuid.UUID:
    return uuid.uuid4()


def parse_lsn(text: str) -> int:
    if not LSN_PATTERN.match(text):
        raise ValueError(f"{text!r} is not an LSN; write it as two hex numbers with a slash, such as 0/16B3748")
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(value: int) -> str:
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
