"""`weir-admin user`, and `weir`'s commands for organisations, members and keys: the real programs."""

import asyncio
import getpass
import io
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select
from weir_testing.fixtures import Weir
from weir_testing.people import PASSWORD, browser, keyed, organization, person

from weir.cli.errors import CliError
from weir.cli.users import make_first_user
from weir.errors import BadRequestError
from weir.identity import service as identity
from weir.identity.models import Account
from weir.people import command
from weir.people.roles import Role

ADMIN = (sys.executable, "-c", "from weir.admin import main; main()", "user")
PROGRAM = (sys.executable, "-c", "from weir.cli import main; main()")


async def ran(*words: str, given: str = "", code: int = 0, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        env=os.environ | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        out, _ = await process.communicate(given.encode())
    said = out.decode()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert PASSWORD not in said
    return said


async def sign_in(weir: Weir, email: str, password: str) -> int:
    async with browser(weir.url) as client:
        return (await client.post("/auth/sign_in", json={"email": email, "password": password})).status_code


async def test_a_person_is_made_and_helped_by_whoever_runs_the_machine(weir: Weir) -> None:
    email = f"{uuid4()}@example.org"
    named = f"org-{uuid4().hex[:8]}"
    home = await organization(weir.resources.database, named)
    create = (*ADMIN, "create", email, "--organization", named)
    assert "first line" in await ran(*create, code=1)
    assert "characters" in await ran(*create, given="short\n", code=1)
    assert "is owner of" in await ran(*create, given=f"{PASSWORD}\n")
    assert "is known" in await ran(*create, given=f"{PASSWORD}\n", code=1)
    assert "nobody was made" in await ran(*ADMIN, "create", f"{uuid4()}@example.org", "--if-none")
    assert await sign_in(weir, email.upper(), PASSWORD) == 204
    async with browser(weir.url) as client:
        await client.post("/auth/sign_in", json={"email": email, "password": PASSWORD})
        (mine,) = (await client.get("/users/me/organizations")).json()["organizations"]
        assert mine["id"] == str(home)
        await ran(*ADMIN, "password", email, given="a password that is new\n")
        assert (await client.get("/users/me")).status_code == 401
    assert await sign_in(weir, email, "a password that is new") == 204
    assert "last owner" in await ran(*ADMIN, "member", email, named, "viewer", code=1)
    assert "is admin of" in await ran(*ADMIN, "member", email, "admin", "admin")
    assert "password alone" in await ran(*ADMIN, "end-second-factor", email)
    assert "signs in as" in await ran(*ADMIN, "link", email, "https://login.example.org", "subject-1")
    assert "linked already" in await ran(*ADMIN, "link", email, "https://login.example.org", "subject-1", code=1)
    assert "1 links ended" in await ran(*ADMIN, "unlink", email)
    assert "has no password" in await ran(*ADMIN, "provider-only", email)
    assert await sign_in(weir, email, "a password that is new") == 401
    assert "nobody with the email" in await ran(*ADMIN, "password", f"x{email}", given=f"{PASSWORD}\n", code=1)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_password_is_asked_for_twice_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["one", "one", "one", "another"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(answers))
    assert command.read_password(_Terminal("never read")) == "one"
    with pytest.raises(BadRequestError, match="two passwords"):
        command.read_password(_Terminal())


@pytest.mark.usefixtures("environment")
def test_weir_up_has_the_first_person_made_without_seeing_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `weir-admin` in its place notes what it is given."""
    seen = tmp_path / "seen"
    fake = tmp_path / "weir-admin"
    fake.write_text(
        f'#!/bin/sh\nread line\necho "$@" >{seen}\nenv >>{seen}\n[ "$line" = "{PASSWORD}" ] && echo made\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr("weir.cli.users.script", lambda name: str(tmp_path / name))

    class Installation:
        def environment(self) -> dict[str, str]:
            return {"PATH": os.environ["PATH"]}

    installation: Any = Installation()
    reading, writing = os.pipe()
    os.write(writing, f"{PASSWORD}\n".encode())
    os.close(writing)
    kept = os.dup(0)
    try:
        os.dup2(reading, 0)
        make_first_user(installation, "first@example.org")
        with pytest.raises(CliError, match="--first-user"):
            make_first_user(installation, "second@example.org")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reading)
    assert "user create second@example.org --if-none" in seen.read_text()
    assert PASSWORD not in seen.read_text()


async def test_members_and_keys_are_shown_and_changed_by_the_command(weir: Weir, tmp_path: Path) -> None:
    database = weir.resources.database
    async with database.transaction() as session:
        key = await identity.create_account(session, f"cli-{uuid4().hex[:8]}", "cli@localhost", operator=False)
    async with keyed(weir.url, key) as client:
        (mine,) = (await client.get("/users/me/organizations")).json()["organizations"]
    async with database.transaction() as session:
        home = (await session.scalars(select(Account.id).where(Account.name == mine["name"]))).one()
    environment = {"WEIR_API_URL": weir.url, "WEIR_API_KEY": key, "HOME": str(tmp_path), "WEIR_HOME": str(tmp_path)}

    async def weir_(*words: str, code: int = 0) -> str:
        return await ran(*PROGRAM, *words, code=code, **environment)

    assert mine["name"] in await weir_("orgs", "list")
    assert "No member" in await weir_("members", "list")
    owner = await person(database, {home: Role.OWNER})
    other = await person(database, {await organization(database): Role.OWNER})
    assert other.email in await weir_("members", "add", other.email, "--role", "viewer")
    assert "is admin" in await weir_("members", "set-role", other.email, "admin")
    listed = await weir_("members", "list", "--org", mine["name"])
    assert owner.email in listed
    assert other.email in listed
    assert "--yes" in await weir_("members", "remove", other.email, code=1)
    assert "is out" in await weir_("members", "remove", other.email, "--yes")
    assert "last owner" in await weir_("members", "remove", owner.email, "--yes", code=1)
    invited = f"{uuid4().hex}@example.org"
    assert "No open invitation" in await weir_("invitations", "list")
    assert "/accept-invitation#weir_invitation_" in await weir_("invitations", "create", invited, "--role", "viewer")
    assert invited in await weir_("invitations", "list")
    assert "not invited any more" in await weir_("invitations", "revoke", invited)
    assert "no open invitation" in await weir_("invitations", "revoke", invited, code=1)
    made = await weir_("api-keys", "create", "ci", "--read-only", "--expires", "30d")
    shown, number = (
        next(line.split()[-1] for line in made.splitlines() if line.startswith(word)) for word in ("Key:", "ID:")
    )
    async with keyed(weir.url, shown) as client:
        assert (await client.get("/projects")).status_code == 200
        assert (await client.post("/projects", json={"project": {}})).status_code == 403
        assert any(
            line.split()[:3] == [number, "ci", "read"] for line in (await weir_("api-keys", "list")).splitlines()
        )
        await weir_("api-keys", "revoke", number)
        assert (await client.get("/projects")).status_code == 401
