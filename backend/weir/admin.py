"""`weir-admin`: what an operator runs by hand or at start."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from weir.config import get_settings
from weir.db import Database
from weir.errors import BadRequestError, WeirError
from weir.identity import seals
from weir.identity import service as identity
from weir.kit.crypto import ensure_secrets
from weir.people import command as people
from weir.quotas import command as quotas
from weir.tokens import commands as token_commands

_MIGRATION_LOCK = 0x77656972_00
# How long Temporal shows workflows that have ended. What they did is in the metadata database.
_KEEP_WORKFLOWS = Duration(seconds=3 * 86_400)


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


async def migrate() -> None:
    """Secrets, schema, bootstrap key. Safe to repeat and to run twice at once."""
    settings = get_settings()
    api_key = ensure_secrets(settings.secrets_dir)
    engine = create_async_engine(settings.database_url)
    try:
        async with engine.connect() as connection:
            # Held by the session, so that two first starts at once migrate one after the other.
            await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.commit()
            await asyncio.to_thread(command.upgrade, alembic_config(), "head")
    finally:
        await engine.dispose()
    database = Database(settings)
    try:
        async with database.transaction() as session:
            await identity.bootstrap(session, api_key)
    finally:
        await database.close()


async def temporal_namespace() -> str:
    """Makes the namespace of the settings unless Temporal has it: a server, unlike the dev server, begins with none.
    Raises RPCError when Temporal refuses, RuntimeError when it cannot be reached."""
    settings = get_settings()
    client = await Client.connect(settings.temporal_address, namespace=settings.temporal_namespace)
    wanted = RegisterNamespaceRequest(
        namespace=settings.temporal_namespace, workflow_execution_retention_period=_KEEP_WORKFLOWS
    )
    try:
        await client.workflow_service.register_namespace(wanted)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
        return f"namespace {settings.temporal_namespace} is there"
    return f"namespace {settings.temporal_namespace} made"


async def account_key(name: str) -> str:
    database = Database(get_settings())
    try:
        async with database.transaction() as session:
            return await identity.create_another_key(session, name)
    finally:
        await database.close()


async def account(name: str, email: str | None, *, operator: bool) -> str:
    """Makes an account (`email` given) or changes its role; what to tell the person who asked for it."""
    database = Database(get_settings())
    try:
        async with database.transaction() as session:
            if email is not None:
                return await identity.create_account(session, name, email, operator=operator)
            await identity.set_operator(session, name, operator=operator)
            return f"account {name} is {'an operator' if operator else 'no operator'} now"
    finally:
        await database.close()


async def _account(arguments: argparse.Namespace) -> str:
    if arguments.verb == "key":
        return await account_key(arguments.name)
    email = getattr(arguments, "email", None)
    operator = arguments.operator if email is not None else arguments.wanted == "yes"
    return await account(arguments.name, email, operator=operator)


async def _user(arguments: argparse.Namespace) -> str:
    database = Database(get_settings())
    try:
        async with database.transaction() as session:
            return await people.run(session, arguments)
    finally:
        await database.close()


async def _audit(arguments: argparse.Namespace) -> int:
    """Prints what the chain over the audit log shows; the exit code is 1 when something does not fit."""
    try:
        known = seals.Head.parse(arguments.known) if arguments.known else None
    except ValueError:
        raise BadRequestError(
            f"--known {arguments.known!r} is no head; give POSITION:HASH as `audit verify` printed it"
        ) from None
    database = Database(get_settings())
    try:
        async with database.transaction() as session:
            found = await seals.verify(session, known)
    finally:
        await database.close()
    for fault in found.faults:
        print(f"FAULT: {fault}")  # noqa: T201  its answer
    print(f"{found.head.position} entries sealed, {found.pending} waiting; head {found.head}")  # noqa: T201
    return 1 if found.faults else 0


def openapi() -> str:
    from weir.main import create_app  # noqa: PLC0415  other commands need no application

    return json.dumps(create_app().openapi(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="weir-admin", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("migrate", help="create secrets, bring the schema up to date, register the API key")
    commands.add_parser("temporal-namespace", help="make the namespace of Weir's workflows, unless Temporal has it")
    commands.add_parser("openapi", help="print the API's OpenAPI document")
    accounts = commands.add_parser("account", help="make an account, or change whether it is an operator")
    verbs = accounts.add_subparsers(dest="verb", required=True)
    create = verbs.add_parser("create", help="make an account and print its first API key")
    create.add_argument("name")
    create.add_argument("email")
    create.add_argument("--operator", action="store_true", help="it sees and rolls out over every account's computes")
    key = verbs.add_parser("key", help="print a new API key of an account that has lost its own")
    key.add_argument("name")
    role = verbs.add_parser("operator", help="say whether an account is an operator")
    role.add_argument("name")
    role.add_argument("wanted", choices=["yes", "no"])
    people.add_parser(commands)
    chain = commands.add_parser("audit", help="check the chain of hashes over the audit log")
    checks = chain.add_subparsers(dest="verb", required=True)
    check = checks.add_parser("verify", help="go through all of it; print its head, to be noted elsewhere")
    check.add_argument("--known", metavar="POSITION:HASH", help="a head noted before, which has to lie on the chain")
    tokens = commands.add_parser("tokens", help="the keys that sign what parts in containers know each other by")
    token_commands.add_to(tokens)
    quotas.add_arguments(commands.add_parser("quotas", help="show or set how much an account or a project may have"))
    arguments = parser.parse_args()
    if arguments.command == "tokens":
        parser.exit(token_commands.run(arguments))
    if arguments.command == "migrate":
        asyncio.run(migrate())
    elif arguments.command == "temporal-namespace":
        try:
            print(asyncio.run(temporal_namespace()), flush=True)  # noqa: T201  its answer
            # Threads of Temporal's client have no end, and abort an interpreter that ends while they use it.
            os._exit(0)
        except (RPCError, RuntimeError) as error:
            parser.exit(1, f"weir-admin: Temporal at {get_settings().temporal_address}: {error}\n")
    elif arguments.command in {"account", "audit", "quotas", "user"}:
        try:
            if arguments.command == "audit":
                parser.exit(asyncio.run(_audit(arguments)))
            asked = {"quotas": quotas.run, "user": _user}.get(arguments.command, _account)
            print(asyncio.run(asked(arguments)))  # noqa: T201  its answer
        except WeirError as error:
            parser.exit(1, f"weir-admin: {error.message}\n")
    else:
        sys.stdout.write(openapi())
