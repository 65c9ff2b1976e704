"""The list of settings that a customer may choose, and the checks by it. Pure, but for reading the list once.

The list is `settings_list.json` beside this module, one file that the engine owns and its agent has too
(docs/adr/0047). Both check by the same rules and answer with the same sentences.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weir.endpoints import setting_values as values

DATA = Path(__file__).with_name("settings_list.json")
LONGEST_VALUE = 1000
LONGEST_SHOWN = 60
_OWN_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class RefusedSettingError(ValueError):
    """A setting cannot be as asked for; the message names it, and says why and what to do."""


@dataclass(frozen=True)
class Setting:
    """What the list has of one setting for one major; its fields are those of `list.json`."""

    type: str
    # Whether a change waits for the next start of Postgres.
    restart: bool
    unit: str | None = None
    min: float | None = None
    max: float | None = None
    # For a compute of one unit; the lower of this, times the units, and `max` holds.
    per_unit: float | None = None
    # Values outside the range that mean something else.
    also: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    # Other words that Postgres takes for these values.
    words: tuple[str, ...] = ()
    chars: str | None = None
    shortest: int = 0
    longest: int = LONGEST_VALUE
    because: str | None = None

    @classmethod
    def of(cls, held: dict[str, Any]) -> "Setting":
        fields: dict[str, Any] = dict(held)
        for name in ("also", "values", "words"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)

    def most(self, units: float) -> float:
        most = math.inf if self.max is None else self.max
        return most if self.per_unit is None else min(most, math.floor(self.per_unit * units))


@dataclass(frozen=True)
class SettingsList:
    majors: Mapping[int, Mapping[str, Setting]]
    refused: Mapping[str, str]
    own_prefixes: frozenset[str]

    def check(self, name: str, value: object, major: int, units: float) -> tuple[str, str]:
        """Name and value as Postgres is given them, of a compute of so many units; or raises RefusedSettingError."""
        shown, lower = shorten(name), name.lower() if name.isascii() else name
        if lower in self.refused:
            raise RefusedSettingError(f"setting {shown} cannot be set: {self.refused[lower]}; leave it out")
        setting = self._own(lower) or self.majors[major].get(lower)
        if setting is None:
            raise RefusedSettingError(
                f"setting {shown} is not one that Postgres {major} has and a customer may set; check how it is "
                "written, or leave it out"
            )
        text = _text(shown, setting, value)
        fault = _fault(setting, text, units)
        if fault is not None:
            because = f", since {setting.because}" if setting.because else ""
            raise RefusedSettingError(f'setting {shown}: "{shorten(text)}" {fault}{because}')
        return lower, text

    def _own(self, name: str) -> Setting | None:
        prefix, dot, rest = name.partition(".")
        if not dot or prefix not in self.own_prefixes or not _OWN_NAME.fullmatch(rest):
            return None
        return Setting(type="string", restart=False)


@cache
def settings_list() -> SettingsList:
    held = json.loads(DATA.read_text())
    return SettingsList(
        {
            int(major): {name: Setting.of(setting) for name, setting in settings.items()}
            for major, settings in held["majors"].items()
        },
        held["refused"],
        frozenset({held["own_prefix"]}),
    )


def shorten(text: str) -> str:
    """For messages: no control characters, no more than fits a line."""
    clean = _CONTROL.sub("?", text.encode(errors="replace").decode())
    return clean if len(clean) <= LONGEST_SHOWN else f"{clean[:LONGEST_SHOWN]}..."


def _text(shown: str, setting: Setting, value: object) -> str:
    if isinstance(value, bool):
        text = "on" if value else "off"
    elif isinstance(value, int | float):
        text = str(value)
    elif isinstance(value, str):
        text = value
    else:
        raise RefusedSettingError(
            f"setting {shown}: the value must be a string, a number or a boolean; leave the setting out to clear it"
        )
    if _CONTROL.search(text) or not _is_unicode(text):
        raise RefusedSettingError(
            f"setting {shown}: the value has a line break, a NUL or another control character in it; remove it"
        )
    if len(text) > setting.longest:
        raise RefusedSettingError(
            f"setting {shown}: the value is {len(text)} characters long; give at most {setting.longest}"
        )
    return text


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair is none; JSON can write it."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _fault(setting: Setting, text: str, units: float) -> str | None:
    match setting.type:
        case "bool":
            return None if values.boolean(text) is not None else "is not a boolean; give on or off"
        case "enum":
            lower = text.lower()
            if lower in setting.values or lower in setting.words:
                return None
            return f"is not one of its values; give one of {', '.join(setting.values)}"
        case "string":
            if setting.chars is not None and (set(text) - set(setting.chars) or len(text) < setting.shortest):
                return (
                    "has characters in it that such a value has not, or none; give it as Postgres's manual writes it"
                )
            return None
        case _:
            return _fault_of_number(setting, text, units)


def _fault_of_number(setting: Setting, text: str, units: float) -> str | None:
    parse = values.integer if setting.type == "integer" else values.real
    number = parse(text, setting.unit)
    least, most = setting.min if setting.min is not None else -math.inf, setting.most(units)
    span = f"from {values.written(least, setting.unit)} to {values.written(most, setting.unit)}"
    also = "".join(f", or {values.written(value, None)}" for value in setting.also)
    if number is None:
        kind = "a whole number" if setting.type == "integer" else "a number"
        following = values.units_of(setting.unit)
        with_unit = f", with a unit of {', '.join(following)} or none" if following else ""
        return f"is not {kind}{with_unit}; give one {span}{also}"
    if least <= number <= most or number in setting.also:
        return None
    size = f" of a compute of {units:g} unit{'' if units == 1 else 's'}" if setting.per_unit is not None else ""
    return f"is out of the range{size}; give a value {span}{also}"
