"""Which extensions computes offer: those on one list, at versions that it names (docs/adr/0056).

Postgres lets the owner of a database create every extension that calls itself trusted and lies in the server's
folder, so a package that an operator installs would open what nobody has examined. In a copy of the server all others
are replaced: what is left of one is its name, why it is not offered, and a script that says so to whoever asks.

The list is `extensions.json` beside this module, one file that the engine owns.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("extensions.json")
# The version that a refused extension has.
REFUSED = "refused"
_SCRIPT = """DO $refuse$ BEGIN RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
    MESSAGE = '{said}',
    HINT = 'Those that are offered: SELECT name FROM pg_available_extensions WHERE default_version <> ''refused''.';
END $refuse$;
"""
_VERSION = re.compile(r"^\s*default_version\s*=\s*'?([^'\s]*)'?", re.MULTILINE)
_TRUSTED = re.compile(r"^\s*trusted\s*=?\s*'?(on|true|yes|1)\b", re.MULTILINE | re.IGNORECASE)


@cache
def _list() -> dict[str, Any]:
    return json.loads(DATA.read_text())


@dataclass(frozen=True)
class Offered:
    """What the list says for one major; versions that may be had by name of the extension, reasons for others, and
    those that operators check databases with, which Postgres itself gives to nobody but the superuser."""

    allowed: dict[str, list[str]]
    superuser: list[str]
    refused: dict[str, str]
    unknown: str

    @classmethod
    def by(cls, version: str) -> "Offered | None":
        """For a minor, such as 15.20; None for a major that the list does not have, which no compute runs."""
        data = _list()
        found = data["majors"].get(version.partition(".")[0])
        return None if found is None else cls(found["allowed"], found["superuser"], found["refused"], data["unknown"])

    def why_not(self, name: str, version: str, *, trusted: bool) -> str | None:
        """Why an extension is not offered, as the end of a sentence; None: it is. `trusted`: its control file says
        that owners of databases may create it."""
        if name in self.superuser and not trusted:
            return None
        versions = self.allowed.get(name)
        if versions is None:
            return self.refused.get(name, self.unknown)
        if version not in versions:
            return f"version {version} is not on the list of what Weir has examined, only {', '.join(versions)}"
        return None


def close(server: Path, version: str) -> list[str]:
    """Leaves in a copy of a server only the extensions that are offered; returns names of those that went. Files are
    removed and written anew, so that what they were links to stays as it is."""
    offered = Offered.by(version)
    if offered is None:
        return []
    gone: list[str] = []
    for control in sorted(server.rglob("extension/*.control")):
        # A control file of one version only, beside the extension's own.
        if "--" in control.stem:
            continue
        text = control.read_text(errors="replace")
        found, trusted = _VERSION.search(text), _TRUSTED.search(text) is not None
        why = offered.why_not(control.stem, found[1] if found else "", trusted=trusted)
        if why is not None:
            _refuse(control, why)
            gone.append(control.stem)
    return gone


def _refuse(control: Path, why: str) -> None:
    name = control.stem
    for path in control.parent.iterdir():
        if path == control or path.name.startswith(f"{name}--"):
            path.unlink()
    said = f'Weir does not offer the extension "{name}": {why}'
    quoted = said.replace("'", "''")
    # Without a superuser's rights, so that everybody comes as far as the script.
    control.write_text(
        f"comment = '{quoted}'\ndefault_version = '{REFUSED}'\nsuperuser = false\nrelocatable = true\n"
    )
    control.with_name(f"{name}--{REFUSED}.sql").write_text(_SCRIPT.replace("{said}", quoted))
    for path in (control, control.with_name(f"{name}--{REFUSED}.sql")):
        path.chmod(0o644)
