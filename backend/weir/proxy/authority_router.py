from fastapi import APIRouter

from weir.authz.principal import CurrentPrincipal
from weir.config import get_settings
from weir.errors import NotFoundError, UnauthorizedError, UnavailableError, responses
from weir.proxy import authority
from weir.proxy.schemas import CertificateAuthorityResponse

router = APIRouter(tags=["projects"], responses=responses(UnauthorizedError, NotFoundError, UnavailableError))


@router.get("/certificate_authority")
async def get_certificate_authority(_: CurrentPrincipal) -> CertificateAuthorityResponse:
    """The certificate of the CA by which clients know the proxy: `sslrootcert` of libpq, with `sslmode=verify-full`.

    404 where there is no proxy, or where the operator has given the proxy a certificate: clients know such a
    certificate by the CA that issued it."""
    return CertificateAuthorityResponse(certificate_authority=await authority.read(get_settings()))
