"""`weir-admin user ...`: people, by whoever may run it on the machine.

A password is read from the terminal, without being shown, or from the first line of standard input: it is in no list
of processes, no shell's history and no log.
"""

import argparse
import getpass
import sys
from typing import TextIO

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import BadRequestError
from weir.identity.service import BOOTSTRAP_ACCOUNT
from weir.people import administration
from weir.people.models import User
from weir.people.roles import Role

ROLES = [role.value for role in Role]


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    users = commands.add_parser("user", help="make a person, or help one who has lost their way in")
    verbs = users.add_subparsers(dest="verb", required=True)
    create = verbs.add_parser("create", help="make a person; the password is asked for, or read from standard input")
    create.add_argument("email")
    create.add_argument("--name", default="")
    create.add_argument("--organization", default=BOOTSTRAP_ACCOUNT, help="by name [%(default)s]")
    create.add_argument("--role", choices=ROLES, default=Role.OWNER.value, help="there [%(default)s]")
    create.add_argument("--if-none", action="store_true", help="do nothing where there is a person already")
    password = verbs.add_parser("password", help="set a person's password; all their sessions end")
    password.add_argument("email")
    factor = verbs.add_parser("end-second-factor", help="for who has lost authenticator and recovery codes")
    factor.add_argument("email")
    link = verbs.add_parser("link", help="have a person sign in as whoever an identity provider calls SUBJECT")
    link.add_argument("email")
    link.add_argument("issuer", help="as the provider's settings have it")
    link.add_argument("subject", help="`sub` of the person at the provider")
    unlink = verbs.add_parser("unlink", help="end all links of a person with identity providers, and their sessions")
    unlink.add_argument("email")
    alone = verbs.add_parser(
        "provider-only",
        help="end password, second factor, sessions, keys and links: the next sign-in by a provider links",
    )
    alone.add_argument("email")
    member = verbs.add_parser("member", help="make a person a member of an organization, or change the role there")
    member.add_argument("email")
    member.add_argument("organization", help="by name")
    member.add_argument("role", choices=ROLES)


async def run(session: AsyncSession, arguments: argparse.Namespace) -> str:
    """What to tell the person who asked for it."""
    email = arguments.email
    if arguments.verb == "create":
        if arguments.if_none and await session.scalar(select(func.count()).select_from(User)):
            return "there is a person already; nobody was made"
        of, role = arguments.organization, Role(arguments.role)
        user = await administration.create_user(session, email, arguments.name, read_password(sys.stdin), of, role)
        return f"{user.email} is {role.value} of {of}, and signs in with the password that was given"
    if arguments.verb == "password":
        await administration.set_password(session, email, read_password(sys.stdin))
        return f"the password of {email} is changed; all sessions have ended"
    if arguments.verb == "end-second-factor":
        await administration.end_second_factor(session, email)
        return f"{email} signs in with the password alone"
    if arguments.verb == "link":
        await administration.link(session, email, arguments.issuer, arguments.subject)
        return f"{arguments.subject} of {arguments.issuer} signs in as {email}"
    if arguments.verb == "unlink":
        ended = await administration.unlink(session, email)
        return f"{email} is linked with no identity provider ({ended} links ended); all sessions have ended"
    if arguments.verb == "provider-only":
        await administration.end_password(session, email)
        return (
            f"{email} has no password any more and signs in by an identity provider; sessions, keys, links have ended"
        )
    await administration.set_member(session, email, arguments.organization, Role(arguments.role))
    return f"{email} is {arguments.role} of {arguments.organization}"


def read_password(given: TextIO) -> str:
    """Asked for twice at a terminal; elsewhere the first line. Raises BadRequestError."""
    if not given.isatty():
        password = given.readline().rstrip("\r\n")
        if not password:
            raise BadRequestError(
                "standard input has no password in its first line; give it there, or use a terminal"
            )
        return password
    password = getpass.getpass("Password: ")
    if getpass.getpass("The same again: ") != password:
        raise BadRequestError("these were two passwords; begin again")
    return password
