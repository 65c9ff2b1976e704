"""The Postgres settings of endpoints: checked by the list of those that a customer may choose."""

import math
from typing import Any

from weir.endpoints.setting_values import integer
from weir.endpoints.settings_list import RefusedSettingError, settings_list, shorten
from weir.endpoints.sizes import UNIT
from weir.errors import BadRequestError

MAX_SETTINGS = 100


def check(settings: dict[str, Any], major: int, units: float = UNIT) -> dict[str, str]:
    """The settings as Postgres text by lower-case name, or a refusal that names the first wrong one. Settings are of
    an endpoint on this major of Postgres whose smallest size is `units`."""
    if len(settings) > MAX_SETTINGS:
        raise BadRequestError(f"pg_settings holds {len(settings)} entries; at most {MAX_SETTINGS} are taken")
    checked: dict[str, str] = {}
    for name, value in settings.items():
        try:
            lower, text = settings_list().check(name, value, major, units)
        except RefusedSettingError as refusal:
            raise BadRequestError(f"pg_settings: {refusal}") from refusal
        if lower in checked:
            raise BadRequestError(
                f"pg_settings: setting {shorten(name)} is named twice, since Postgres does not tell capitals from "
                "small letters in names; leave one of them out"
            )
        checked[lower] = text
    return checked


DEFAULT_CHECKPOINT_TIMEOUT = 300


def checkpoint_timeout_seconds(settings: dict[str, Any]) -> int:
    """The longest a checkpoint cycle of an endpoint with these settings takes."""
    seconds = integer(str(settings.get("checkpoint_timeout", DEFAULT_CHECKPOINT_TIMEOUT)), "s")
    return DEFAULT_CHECKPOINT_TIMEOUT if seconds is None or math.isinf(seconds) else max(1, int(seconds))
