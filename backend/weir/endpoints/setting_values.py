"""Values of Postgres's settings, read as Postgres's own configuration parser reads them. Pure.

The rules are those of the documentation's "Setting Parameters" and of `guc.c`: a whole number may be decimal, octal
with a leading 0, hexadecimal, or have a fraction and an exponent, and is rounded; units are case-sensitive and follow
the number, perhaps after blanks; words are not case-sensitive. The agent reads them by the same rules
(`storage/crates/compute/src/settings/values.rs`), and both are tested with one table of cases.
"""

import math
import re
from typing import Final

# In bytes, and in microseconds. What Postgres calls `8kB` is a unit of settings only, never of a value.
_BYTES: Final = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_MICROSECONDS: Final = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip
_BLOCK: Final = "8kB"
_LEAST_INTEGER, _MOST_INTEGER = -(2**31), 2**31 - 1
_INTEGER = re.compile(
    r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]+)|([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?))"
    r"\s*([A-Za-z]*)\s*",
    re.ASCII,
)
_REAL = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def boolean(text: str) -> bool | None:
    """As a word or the beginning of one that is clear; None when it is none."""
    word = text.lower()
    if word in {"on", "1"} or (word and ("true".startswith(word) or "yes".startswith(word))):
        return True
    if word in {"off", "of", "0"} or (word and ("false".startswith(word) or "no".startswith(word))):
        return False
    return None


def integer(text: str, unit: str | None) -> float | None:
    """In the setting's unit, rounded to a whole number, which is infinite beyond 32 bits; None when it is no number,
    or its unit is not of the setting's kind."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    sign, hexadecimal, digits, given = match.groups()
    number = _hexadecimal(hexadecimal) if hexadecimal else _decimal_or_octal(digits)
    if number is None:
        return None
    exact = _converted(-number if sign == "-" else number, given, unit)
    if exact is None:
        return None
    if not _LEAST_INTEGER - 1 < exact < _MOST_INTEGER + 1:
        return exact * float("inf")
    rounded = float(round(exact))
    return rounded if _LEAST_INTEGER <= rounded <= _MOST_INTEGER else rounded * float("inf")


def _hexadecimal(digits: str) -> float:
    return float("inf") if len(digits.lstrip("0")) > 16 else float(int(digits, 16))


def _decimal_or_octal(digits: str) -> float | None:
    whole = re.split(r"[.eE]", digits, maxsplit=1)[0]
    if whole.startswith("0") and set(whole) & {"8", "9"}:
        return None
    if whole != digits or not whole.startswith("0"):
        return float(digits)
    return float("inf") if len(whole.lstrip("0")) > 20 else float(int(whole, 8))


def real(text: str, unit: str | None) -> float | None:
    """In the setting's unit; None when it is no number or has a unit that is not of the setting's kind."""
    match = _REAL.fullmatch(text)
    if match is None:
        return None
    number, given = match.groups()
    return _converted(float(number), given, unit)


def _converted(number: float, given: str, unit: str | None) -> float | None:
    """A number with the unit `given` as one in `unit`. A fraction is rounded to a multiple of the next smaller unit,
    as Postgres does: 0.0001TB is 0GB."""
    if not given:
        return number
    for units in (_BYTES, _MICROSECONDS):
        base = units["kB"] * 8 if units is _BYTES and unit == _BLOCK else units.get(unit or "")
        if base is None or given not in units:
            continue
        exact = number * units[given] / base
        smaller = max((size for size in units.values() if size < units[given]), default=None)
        if smaller is None or math.isinf(exact):
            return exact
        return round(exact / (smaller / base)) * (smaller / base)
    return None


def units_of(unit: str | None) -> list[str]:
    """What may follow a value of a setting in this unit, smallest first."""
    if unit in _MICROSECONDS:
        return list(_MICROSECONDS)
    return list(_BYTES) if unit in _BYTES or unit == _BLOCK else []


def written(number: float, unit: str | None) -> str:
    """A bound as people write it: in the largest unit in which it is a whole number."""
    if unit is None or number <= 0:
        return _plain(number)
    units = _MICROSECONDS if unit in _MICROSECONDS else _BYTES
    base = _BYTES["kB"] * 8 if unit == _BLOCK else units[unit]
    whole = round(number * base)
    if whole != number * base:
        return _plain(number) + unit
    name, size = next((name, size) for name, size in reversed(units.items()) if whole % size == 0)
    return f"{whole // size}{name}"


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:g}"
