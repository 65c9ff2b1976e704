from typing import Literal

from weir.kit.schemas import Timestamp, View


class ProxyEndpoint(View):
    """An endpoint as the proxy knows it (docs/interfaces.md). `address`, HOST:PORT, of a running one; `roles`: the
    SCRAM verifiers of those who can log in; `allowed_ips`: the ranges that clients may come from, as FIRST-LAST, and
    left out where they may come from anywhere."""

    state: Literal["running", "suspended", "disabled"]
    address: str | None = None
    roles: dict[str, str]
    allowed_ips: list[str] | None = None


class CertificateAuthority(View):
    """The CA that signs the proxy's certificate. `pem`: its certificate, as a file for `sslrootcert` has it;
    `sha256_fingerprint`: of that certificate, 32 bytes in hex with colons."""

    pem: str
    sha256_fingerprint: str
    expires_at: Timestamp


class CertificateAuthorityResponse(View):
    certificate_authority: CertificateAuthority
