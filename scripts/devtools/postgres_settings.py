"""`scripts/postgres-settings`: the list of settings that a customer may choose, made of what the server of each
supported major says of its settings and of the policy written by hand (docs/adr/0047).

Each server is started on an empty cluster of its own and asked for `pg_settings`, and which other words it takes for
the values of its enumerations. A major whose server is not on this machine keeps what is committed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .paths import CACHE, PG_BIN, REPO, STORAGE, VENV
from .run import say

FOLDER = STORAGE / "crates/compute/settings"
POLICY, LIST = FOLDER / "policy.toml", FOLDER / "list.json"
MAJORS = (15, 17, 18)
# Words that Postgres takes for values of some enumerations without naming them among these.
OTHER_WORDS = ("true", "false", "yes", "no", "1", "0", "debug", "info", "fatal", "panic", "none", "default")
ABOUT = "Made by scripts/postgres-settings of policy.toml and of what servers say; do not edit."
# What a setting may have in the policy's bounds.
BOUNDS = {"min", "max", "of_memory", "per_unit", "also", "only", "chars", "shortest", "longest", "because"}


class PolicyError(Exception):
    """The policy does not fit the servers; the message says where."""


def main() -> int:
    if Path(sys.prefix) != VENV and (VENV / "bin/python").exists():
        # The client of Postgres is there.
        os.execv(  # noqa: S606 - the same program with another Python
            VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv]
        )
    parser = argparse.ArgumentParser(prog="scripts/postgres-settings", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the list is out of date")
    check: bool = parser.parse_args().check
    try:
        fresh = render(read_servers(), committed())
    except PolicyError as error:
        say(str(error))
        return 1
    if LIST.is_file() and LIST.read_text() == fresh:
        say(f"{LIST.relative_to(REPO)} is current")
        return 0
    if check:
        say(f"{LIST.relative_to(REPO)} is out of date; `scripts/postgres-settings` renews it")
        return 1
    LIST.write_text(fresh)
    say(f"{LIST.relative_to(REPO)} is renewed")
    return 0


def committed() -> dict[str, Any]:
    return json.loads(LIST.read_text()) if LIST.is_file() else {"servers": {}, "majors": {}, "refused": {}}


def homes() -> dict[int, Path]:
    """The programs of the newest server of each supported major that this machine has."""
    places = {major: CACHE / f"postgres-{major}" / "bin" for major in MAJORS} | {15: PG_BIN}
    return {major: place for major, place in places.items() if (place / "postgres").exists()}


def read_servers() -> dict[int, dict[str, Any]]:
    """By major: `version`, `settings` (rows of pg_settings by name) and `words` (by name of an enumeration)."""
    return {major: read_server(bin_dir) for major, bin_dir in homes().items()}


def read_server(bin_dir: Path) -> dict[str, Any]:
    import psycopg  # noqa: PLC0415 - set-up, which has no client yet, imports this package

    with cluster(bin_dir) as socket, psycopg.connect(
        host=socket, user="postgres", dbname="postgres", autocommit=True
    ) as session:  # fmt: skip
        session.row_factory = psycopg.rows.dict_row  # pyright: ignore[reportAttributeAccessIssue]
        rows: list[Any] = session.execute("SELECT * FROM pg_settings").fetchall()
        version: Any = session.execute("SHOW server_version").fetchone()
        words: dict[str, list[str]] = {}
        for row in rows:
            if row["vartype"] == "enum" and row["context"] != "internal":
                taken = [word for word in OTHER_WORDS if _takes(session, row["name"], word)]
                words[row["name"]] = [word for word in taken if word not in row["enumvals"]]
        return {
            "version": version["server_version"].split()[0],
            "settings": {row["name"]: row for row in rows},
            "words": words,
        }


def _takes(session: Any, name: str, word: str) -> bool:
    import psycopg  # noqa: PLC0415

    try:
        session.execute(f"ALTER SYSTEM SET {name} = '{word}'")
    except psycopg.Error:
        return False
    return True


@contextmanager
def cluster(bin_dir: Path) -> Generator[str]:
    """A server on an empty cluster, which listens on a socket in the folder that is yielded. It is copied to where
    the user who runs Postgres may read it."""
    with tempfile.TemporaryDirectory(prefix="weir-settings-") as temporary:
        folder = Path(temporary)
        if os.geteuid() == 0:
            if str(bin_dir).startswith(str(Path.home())):
                shutil.copytree(bin_dir.parent, folder / "server", symlinks=True)
                bin_dir = folder / "server/bin"
            subprocess.run(["chown", "-R", "postgres", temporary], check=True)
        data = str(folder / "data")
        _run(bin_dir / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses='' -c fsync=off -k {temporary}"
        _run(bin_dir / "pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield temporary
        finally:
            _run(bin_dir / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def _run(program: Path, *arguments: str) -> None:
    as_postgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    command = [*as_postgres, str(program), *arguments]
    done = subprocess.run(
        command, check=False, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode != 0:
        raise PolicyError(f"{program.name} failed: {done.stdout.decode(errors='replace')[-500:]}")


def render(servers: Mapping[int, dict[str, Any]], before: dict[str, Any]) -> str:
    """The list as text: one line for each setting."""
    policy = tomllib.loads(POLICY.read_text())
    refused = dict(before["refused"]) if set(servers) != set(MAJORS) else {}
    for entry in policy["refuse"]:
        refused |= dict.fromkeys(entry.get("words", []), entry["why"])
    versions = before["servers"] | {str(major): server["version"] for major, server in servers.items()}
    majors: dict[str, Any] = dict(before["majors"])
    for major, server in servers.items():
        allowed, reasons = sort_out(policy, server["settings"])
        refused |= reasons
        majors[str(major)] = {name.lower(): _entry(policy, server, name) for name in allowed}
    check_unused(policy, servers)
    lines = ["{", f'  "about": {json.dumps(ABOUT)},', f'  "servers": {json.dumps(_sorted(versions))},']
    lines += [f'  "own_prefix": {json.dumps(policy["own"]["prefix"])},', '  "majors": {']
    for major, settings in sorted(majors.items()):
        lines += [f'    "{major}": {{', *_rows(settings, "      "), "    }" + ("," if major != max(majors) else "")]
    lines += ["  },", '  "refused": {', *_rows({name.lower(): why for name, why in refused.items()}, "    "), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def _sorted(values: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(values.items()))


def _rows(values: dict[str, Any], indent: str) -> list[str]:
    rows = [f"{indent}{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(values.items())]
    return [row + "," for row in rows[:-1]] + rows[-1:]


def sort_out(policy: dict[str, Any], settings: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Names that are allowed, and why others are not. Each must be named in the policy once."""
    allowed = set(policy["allow"])
    reasons: dict[str, str] = {}
    faults: list[str] = []
    for name in settings:
        whys = [
            entry["why"]
            for entry in policy["refuse"]
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in entry.get("names", []))
        ]
        if len(whys) + (name in allowed) != 1:
            times = "not at all" if not whys and name not in allowed else "more than once"
            faults.append(f"{name} is named {times}")
        elif whys:
            reasons[name] = whys[0]
    if faults:
        raise PolicyError(f"{POLICY.relative_to(REPO)}: {'; '.join(faults)}; allow each setting or refuse it, once")
    return [name for name in settings if name in allowed], reasons


def check_unused(policy: dict[str, Any], servers: Mapping[int, dict[str, Any]]) -> None:
    """A name that no server has is a mistake, unless a server is missing that may have it."""
    bounds = policy["bounds"]
    unknown = [f"{name} has bounds and is not allowed" for name in bounds if name not in policy["allow"]]
    unknown += [f"{name} has {key}" for name, held in bounds.items() for key in held if key not in BOUNDS]
    if set(servers) == set(MAJORS):
        names = {name for server in servers.values() for name in server["settings"]}
        patterns = [*policy["allow"], *(name for entry in policy["refuse"] for name in entry.get("names", []))]
        unknown += [f"no server has {name}" for name in patterns if not fnmatch.filter(names, name)]
    if unknown:
        raise PolicyError(f"{POLICY.relative_to(REPO)}: {'; '.join(unknown)}")


def _entry(policy: dict[str, Any], server: dict[str, Any], name: str) -> dict[str, Any]:
    row, bounds = server["settings"][name], policy["bounds"].get(name, {})
    entry: dict[str, Any] = {"type": row["vartype"], "restart": row["context"] == "postmaster"}
    if row["vartype"] in {"integer", "real"}:
        if row["unit"]:
            entry["unit"] = row["unit"]
        entry |= _range(policy, row, bounds)
    elif row["vartype"] == "enum":
        only = [value for value in bounds.get("only", row["enumvals"]) if value in row["enumvals"]]
        entry["values"] = only
        words = server["words"][name]
        if "only" in bounds:
            # Which value a word stands for is known of booleans alone.
            booleans = {"on": ("true", "yes", "1"), "off": ("false", "no", "0")}
            words = [word for word in words if any(word in booleans[value] for value in booleans if value in only)]
        entry |= {"words": words} if words else {}
    elif row["vartype"] == "string":
        entry |= {key: bounds[key] for key in ("shortest", "longest") if key in bounds}
        entry |= {"chars": _characters(bounds["chars"])} if "chars" in bounds else {}
    return entry | ({"because": bounds["because"]} if "because" in bounds else {})


def _range(policy: dict[str, Any], row: dict[str, Any], bounds: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, str(REPO / "backend"))
    from weir.endpoints import setting_values as values  # noqa: PLC0415 - only here, where its rules are needed

    parse = values.integer if row["vartype"] == "integer" else values.real

    def number(value: object) -> float:
        read = parse(str(value), row["unit"])
        if read is None:
            raise PolicyError(f"{POLICY.relative_to(REPO)}: the bound {value} of {row['name']} is no value of it")
        return int(read) if row["vartype"] == "integer" else read

    least, most = number(row["min_val"]), number(row["max_val"])
    # Postgres's own value for "off" stays, when Weir's range begins above it.
    span: dict[str, Any] = {"min": max(least, number(bounds.get("min", least)))}
    span["max"] = min(most, number(bounds.get("max", most)))
    if "of_memory" in bounds:
        memory = number(f"{int(bounds['of_memory'] * policy['unit']['memory_mib'])}MB")
        span["per_unit"] = memory
    elif "per_unit" in bounds:
        span["per_unit"] = bounds["per_unit"]
    if "also" in bounds:
        span["also"] = [number(value) for value in bounds["also"]]
    return span


def _characters(ranges: str) -> str:
    """`a-c_` is `abc_`; a dash at the end is one."""
    found: list[str] = []
    at = 0
    while at < len(ranges):
        if ranges[at + 1 : at + 2] == "-" and at + 2 < len(ranges):
            found += [chr(code) for code in range(ord(ranges[at]), ord(ranges[at + 2]) + 1)]
            at += 3
        else:
            found.append(ranges[at])
            at += 1
    return "".join(found)
