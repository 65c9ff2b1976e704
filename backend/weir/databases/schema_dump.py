"""The schema of a database, as `pg_dump --schema-only` writes it, and how two of them differ.

`pg_dump` runs here, as the database's owner, against the branch's compute. It sees what any client of that role sees.
A compute that is suspended is started for it, as for a client that connects by the proxy.
"""

import asyncio
import difflib
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.config import get_settings
from weir.databases import service
from weir.db import release
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import BadRequestError, PreconditionFailedError, UnavailableError

DUMP_SECONDS = 60.0
LOCK_WAIT_MS = 10_000
# For the start of a suspended compute.
WAKE_SECONDS = 30.0
# Starts the compute of an endpoint that is suspended, and returns when it runs, or when it must not be started.
Wake = Callable[[str], Awaitable[object]]
# Of a dump; more is refused, since the whole of it is held in memory and answered at once.
MOST_BYTES = 16 * 2**20
_RESTRICT = re.compile(r"^\\restrict (\S+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A database to dump: `environment` is the whole of what `pg_dump` gets."""

    branch_id: str
    pg_dump: Path
    environment: dict[str, str]


async def base_of(access: ProjectAccess, project_id: str, branch_id: str, base_branch_id: str | None) -> str:
    """The branch to compare with: the one that is named, or the parent. Raises BadRequestError without either."""
    branch = await access.branch(await access.project(project_id), branch_id)
    # A snapshot is no branch to compare with.
    base_id = base_branch_id or (None if branch.restored_from else branch.parent_id)
    if base_id is None:
        raise BadRequestError(f"branch {branch.id} has no parent to compare with; name one as base_branch_id")
    return base_id


async def difference_of(base: Source, own: Source, database: str) -> str:
    before, after = await asyncio.gather(dump(base), dump(own))
    # Of thousands of tables it takes seconds, in which others are to have their answers.
    return await asyncio.to_thread(difference, before, after, database)


def difference(before: str, after: str, database: str) -> str:
    """A unified diff of two dumps of databases of that name; empty where they are the same."""
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{database}", f"b/{database}"
        )
    )


async def source_of_now(access: ProjectAccess, wake: Wake, project_id: str, branch_id: str, database: str) -> Source:
    """The branch's compute, which runs when this returns. Ends the session's transaction. Raises NotFoundError
    without the database, PreconditionFailedError where the branch has no compute that may run, UnavailableError when
    that does not start in time."""
    branch = await access.branch(await access.project(project_id), branch_id)
    await service.get_database(access, branch, database)
    endpoint = await _reader(access, branch)
    await release(access.session)
    if not _runs(endpoint):
        await wake(endpoint.id)
    source = await source_of(access, branch, database)
    await release(access.session)
    return source


def _runs(endpoint: Endpoint) -> bool:
    return endpoint.state == endpoint.desired_state == EndpointState.ACTIVE


async def _reader(access: ProjectAccess, branch: Branch) -> Endpoint:
    endpoint = await EndpointRepository(access.session).writer_of(branch.id)
    if endpoint is None:
        raise PreconditionFailedError(
            f"branch {branch.id} has no endpoint, and its schema is read by one; create a read-write endpoint, and "
            "repeat the request"
        )
    if endpoint.disabled:
        raise PreconditionFailedError(
            f"the schema of branch {branch.id} is read by its compute, {endpoint.id}, which is disabled; enable it, "
            "and repeat the request"
        )
    return endpoint


async def source_of(access: ProjectAccess, branch: Branch, database: str) -> Source:
    """Raises what `source_of_now` raises, and UnavailableError for a compute that does not run."""
    row = await service.get_database(access, branch, database)
    endpoint = await _reader(access, branch)
    if not _runs(endpoint):
        raise UnavailableError(
            f"the schema of branch {branch.id} is read by its compute, {endpoint.id}, which was stopped just now; "
            "try again"
        )
    owner = await service.get_role(access, branch, row.owner_name)
    settings = get_settings()
    return Source(
        branch.id,
        settings.pg_bin_dir / "pg_dump",
        environment(endpoint.host, endpoint.port, owner.name, service.password_of(owner), row.name),
    )


def environment(host: str, port: int, user: str, password: str, database: str) -> dict[str, str]:
    """Where `pg_dump` connects. Not as arguments: there a database named like an address would be read as one."""
    return {
        "PGHOST": host,
        "PGPORT": str(port),
        "PGUSER": user,
        "PGDATABASE": database,
        "PGPASSWORD": password,
        "PGCONNECT_TIMEOUT": "5",
        "PGCLIENTENCODING": "UTF8",
        "LC_ALL": "C.UTF-8",
    }


async def dump(source: Source) -> str:
    """The schema as SQL; a second dump of the same schema is the same text. Raises UnavailableError when `pg_dump`
    fails or takes too long, PreconditionFailedError for a schema that is too large."""
    process = await asyncio.create_subprocess_exec(
        source.pg_dump,
        "--schema-only",
        "--no-password",
        f"--lock-wait-timeout={LOCK_WAIT_MS}",
        env=source.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DUMP_SECONDS):
            text, errors = await _output(source, process)
    except TimeoutError as error:
        raise UnavailableError(
            f"pg_dump did not read the schema of branch {source.branch_id} within {DUMP_SECONDS:.0f} s; try again, "
            "or run pg_dump --schema-only yourself"
        ) from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        reason = errors.decode(errors="replace").strip() or "it gave no reason"
        raise UnavailableError(f"pg_dump could not read the schema of branch {source.branch_id}: {reason[-500:]}")
    return without_key(text.decode(errors="replace"))


async def _output(source: Source, process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert process.stdout is not None  # noqa: S101  both were asked for
    assert process.stderr is not None  # noqa: S101
    errors = asyncio.create_task(process.stderr.read())
    parts: list[bytes] = []
    size = 0
    while part := await process.stdout.read(2**16):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            errors.cancel()
            raise PreconditionFailedError(
                f"the schema of branch {source.branch_id} has more than {MOST_BYTES} bytes; run "
                "pg_dump --schema-only yourself"
            )
    await process.wait()
    return b"".join(parts), await errors


def without_key(dump: str) -> str:
    """Without the two lines by which pg_dump keeps psql from commands in the dump: their key is another in each
    dump, and two of one schema would differ."""
    found = _RESTRICT.search(dump)
    if found is None:
        return dump
    key = found.group(1)
    return dump.replace(f"\\restrict {key}\n", "", 1).replace(f"\\unrestrict {key}\n", "", 1)
