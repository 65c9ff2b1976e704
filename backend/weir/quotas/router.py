from fastapi import APIRouter

from weir.authz.access import Access
from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.schemas import PathId
from weir.quotas import owners
from weir.quotas.names import names_of, per
from weir.quotas.owners import Owner
from weir.quotas.repository import QuotaRepository
from weir.quotas.schemas import QuotaOwner, QuotasResponse, QuotaView
from weir.quotas.service import Limits, in_force

router = APIRouter(tags=["quotas"], responses=responses(UnauthorizedError, BadRequestError))


@router.get("/quotas")
async def get_quotas(principal: CurrentPrincipal, session: Session) -> QuotasResponse:
    """What the account may have, and has. What a project may have beside that is in its own quotas."""
    owner = owners.account(principal.account_id)
    return await _view(QuotaRepository(session), owner, (await in_force(session, owner)).owner)


@router.get("/projects/{project_id}/quotas", responses=responses(NotFoundError))
async def get_project_quotas(project_id: PathId, access: Access) -> QuotasResponse:
    """What the project may have, and has. Its computes, their units and its storage count for its account as well."""
    project = await access.project(project_id)
    limits = await in_force(access.session, owners.owner_of(project), project.id)
    return await _view(QuotaRepository(access.session), owners.itself(project.id), limits.project)


async def _view(repository: QuotaRepository, owner: Owner, limits: Limits) -> QuotasResponse:
    quotas: list[QuotaView] = []
    for name in names_of(owner.kind):
        used = await repository.used(owner, name)
        quotas.append(
            QuotaView(
                name=name,
                per=per(name, owner.kind),
                limit=limits[name],
                used=used.amount,
                fullest=None if used.of == owner.id else used.of,
                measured_at=used.measured_at,
            )
        )
    return QuotasResponse(owner=QuotaOwner(kind=owner.kind, id=owner.id), quotas=quotas)
