import asyncio
import errno
import socket

from sqlalchemy import Select, bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.endpoints.models import Endpoint

_PORT_LOCK = 0x77656972_01


def _live(statement: Select[Endpoint]) -> Select[Endpoint]:
    return statement.where(Endpoint.deleted_at.is_(None)).order_by(Endpoint.created_at, Endpoint.id)


_OF_SNAPSHOTS = select(Branch.id).where(Branch.project_id == bindparam("of_project"), Branch.is_snapshot)
_LISTED = _live(
    select(Endpoint).where(Endpoint.project_id == bindparam("of_project"), Endpoint.branch_id.not_in(_OF_SNAPSHOTS))
)


class EndpointRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, endpoint: Endpoint) -> None:
        self._session.add(endpoint)

    async def get(self, endpoint_id: str) -> Endpoint | None:
        return await self._session.get(Endpoint, endpoint_id, populate_existing=True)

    async def of_project(self, project_id: str) -> list[Endpoint]:
        return await self._list(select(Endpoint).where(Endpoint.project_id == project_id))

    async def listed(self, project_id: str) -> list[Endpoint]:
        """Without those of snapshots, which run while a state of the past is read."""
        return list((await self._session.scalars(_LISTED, {"of_project": project_id})).all())

    async def of_branch(self, branch_id: str) -> list[Endpoint]:
        return await self._list(select(Endpoint).where(Endpoint.branch_id == branch_id))

    async def _list(self, statement: Select[Endpoint]) -> list[Endpoint]:
        return list((await self._session.scalars(_live(statement))).all())

    async def writer_of(self, branch_id: str) -> Endpoint | None:
        statement = select(Endpoint).where(
            Endpoint.branch_id == branch_id, Endpoint.type == "read_write", Endpoint.deleted_at.is_(None)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def port_is_taken(self, port: int) -> bool:
        statement = select(Endpoint.id).where(Endpoint.port == port, Endpoint.deleted_at.is_(None))
        return (await self._session.scalars(statement)).first() is not None

    async def free_port(self, ports: range, host: str) -> int | None:
        """A port no endpoint has and nothing listens on, where `host` is of this machine: ports of another one cannot
        be tried from here. Serialised until commit, so that of two creations at once each gets its own; the unique
        index is the last word."""
        await self._session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PORT_LOCK})
        taken = set((await self._session.scalars(select(Endpoint.port).where(Endpoint.deleted_at.is_(None)))).all())
        for port in ports:
            if port not in taken and await asyncio.to_thread(_both_free, host, port):
                return port
        return None


def _both_free(host: str, port: int) -> bool:
    return all(_free(host, number) for number in (port, port + 1))


def _free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            # A container that is down has no name.
            return True
        except OSError as error:
            return error.errno == errno.EADDRNOTAVAIL
    return True
