"""The audit log as a file: one JSON object a line."""

from collections.abc import AsyncGenerator

from weir.authz.principal import Principal
from weir.db import Database
from weir.identity.repository import AuditFilter, IdentityRepository
from weir.identity.schemas import AuditEntryView
from weir.kit.pagination import PageRequest

_PAGE = 1000


async def lines(database: Database, principal: Principal, wanted: AuditFilter) -> AsyncGenerator[str]:
    """Newest first. A page is a transaction of its own, so that a slow client holds none open; entries that are
    written meanwhile are left out."""
    page = PageRequest(None, _PAGE)
    while True:
        async with database.transaction() as session:
            repository = IdentityRepository(session)
            rows = await repository.audit_page(principal.account_id, principal.fleet, wanted, page)
        for row in rows[:_PAGE]:
            yield AuditEntryView.model_validate(row).model_dump_json() + "\n"
        if len(rows) <= _PAGE:
            return
        last = rows[_PAGE - 1]
        page = PageRequest(page.cursor_after(last.at, last.id), _PAGE)
