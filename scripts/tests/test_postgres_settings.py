"""The list of settings a customer may choose is what its generator makes of the servers of this machine, and reads
values as they do."""

import json
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import postgres_settings as generator

CASES: list[dict[str, Any]] = json.loads((generator.FOLDER / "cases.json").read_text())
# Faults of the value itself, which Postgres must find as well; all others are bounds and refusals of Weir's.
NO_VALUE = (
    "is not a whole number",
    "is not a number",
    "is not a boolean",
    "is not one of its values; give one of local",
)
# What only a server in use can judge, a locale that this machine may lack, and a number written as C writes it, which
# the list does not take.
LEFT_OUT = {"Nowhere/Nothing", "MULE_INTERNAL", "de_DE.UTF-8", "0x10"}


@pytest.fixture(scope="module")
def servers() -> dict[int, dict[str, Any]]:
    found = generator.read_servers()
    if not found:
        pytest.skip("no server of a supported major is installed")
    return found


def test_the_committed_list_is_what_the_servers_of_this_machine_make(servers: dict[int, dict[str, Any]]):
    fresh = generator.render(servers, generator.committed())
    assert generator.LIST.read_text() == fresh, "`scripts/postgres-settings` renews it"


@pytest.mark.parametrize("major", generator.MAJORS)
def test_postgres_takes_the_values_that_the_list_takes_and_no_malformed_one(major: int):
    home = generator.homes().get(major)
    if home is None:
        pytest.skip(f"no server of Postgres {major} is installed")
    known = json.loads(generator.LIST.read_text())["majors"][str(major)]
    wrong: list[str] = []
    with generator.cluster(home) as socket, psycopg.connect(
        host=socket, user="postgres", dbname="postgres", autocommit=True
    ) as session:  # fmt: skip
        for case in CASES:
            refused = case.get("refused")
            malformed = refused is not None and any(part in refused for part in NO_VALUE)
            name, value = case["name"].lower(), case["value"]
            if case.get("major", 15) != major or name not in known or (refused and not malformed):
                continue
            text = ("on" if value else "off") if isinstance(value, bool) else str(value)
            # The kernel's limit of a stack is below the list's.
            if text in LEFT_OUT or name == "max_stack_depth":
                continue
            taken = takes(session, name, text)
            if taken != (refused is None):
                wrong.append(f"{name} = {text!r}: Postgres {'takes' if taken else 'refuses'} it")
    assert not wrong, "\n".join(wrong)


def takes(session: psycopg.Connection[Any], name: str, value: str) -> bool:
    try:
        session.execute(SQL("ALTER SYSTEM SET {} = {}").format(Identifier(name), Literal(value)))
    except psycopg.Error:
        return False
    return True


def test_a_setting_that_the_policy_does_not_name_stops_the_generator():
    policy: dict[str, Any] = {"allow": ["work_mem"], "refuse": [{"names": ["archive_*"], "why": "no"}]}
    known: dict[str, Any] = {"work_mem": {}, "archive_command": {}}
    assert generator.sort_out(policy, known) == (["work_mem"], {"archive_command": "no"})
    with pytest.raises(generator.PolicyError, match="new_command is named not at all"):
        generator.sort_out(policy, known | {"new_command": {}})
    policy["refuse"].append({"names": ["work_mem"], "why": "no"})
    with pytest.raises(generator.PolicyError, match="work_mem is named more than once"):
        generator.sort_out(policy, known)
