"""The certificate of the installation's CA, for clients that want to know the proxy."""

import asyncio
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from weir.config import Settings
from weir.errors import NotFoundError, UnavailableError
from weir.proxy.schemas import CertificateAuthority


async def read(settings: Settings) -> CertificateAuthority:
    """Reads the file each time: it is replaced when the CA is made again. Of the file, only certificates are given
    away, whatever else somebody has put there."""
    if not settings.has_proxy:
        raise NotFoundError("this installation has no proxy, and with it no CA for its clients")
    if settings.proxy_ca is None:
        raise NotFoundError("the proxy has a certificate of the operator's: clients know it by the CA that issued it")
    return await asyncio.to_thread(_parse, settings.proxy_ca)


def _parse(file: Path) -> CertificateAuthority:
    try:
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UnavailableError(f"the CA's certificate {file.name} cannot be read ({type(error).__name__})") from None
    return CertificateAuthority(
        pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        sha256_fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":"),
        expires_at=certificate.not_valid_after_utc,
    )
