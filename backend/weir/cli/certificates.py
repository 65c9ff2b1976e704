"""The proxy's certificate, and the installation's own CA that signs it where the operator gives none.

Private keys are in `secrets/`, for their owner alone; certificates are in `tls/`, for everybody: clients need the one
of the CA.
A crash between two files leaves a pair that does not fit, which the next call replaces as a whole.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from weir.cli.errors import CliError
from weir.cli.files import write_whole

CA_DAYS = 3650
SERVER_DAYS = 365
# What has less than this left is made again: between two `weir up` there can be many months.
RENEW_CA_DAYS = 730
RENEW_SERVER_DAYS = 180
# A given certificate with less left is worth a word.
WARN_DAYS = 21
# The clock of a client can be behind.
_EARLIER = dt.timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """Of one installation. `given`: certificate and private key of the operator's own, in place of ours."""

    home: Path
    given: tuple[Path, Path] | None = None

    @property
    def ca(self) -> Path:
        return self.home / "tls" / "ca.pem"

    @property
    def ca_key(self) -> Path:
        return self.home / "secrets" / "proxy_ca.key"

    @property
    def certificate(self) -> Path:
        return self.given[0] if self.given else self.home / "tls" / "proxy.pem"

    @property
    def key(self) -> Path:
        return self.given[1] if self.given else self.home / "secrets" / "proxy.key"


def prepare(files: Files, names: list[str], now: dt.datetime) -> list[str]:
    """Makes what is missing, ends soon or is for other names; answers with what the operator should know."""
    if files.given:
        return _check_given(files, now)
    files.ca.parent.mkdir(mode=0o755, exist_ok=True)
    said: list[str] = []
    authority = _pair(files.ca, files.ca_key)
    if authority is None or _days_left(authority[0], now) < RENEW_CA_DAYS:
        if authority is not None:
            said.append(f"the CA in {files.ca} ends soon and was made again: give clients the new file")
        authority = _new_authority(files, now)
    server = _pair(files.certificate, files.key)
    if server is None or not _still_good(server[0], authority[0], names, now):
        _new_server(files, authority, names, now)
    return said


def _pair(certificate: Path, key: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """None when a file is missing or makes no sense, or when they do not fit each other."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != found.public_key():
        return None
    return found, private


def _days_left(certificate: x509.Certificate, now: dt.datetime) -> int:
    return (certificate.not_valid_after_utc - now).days


def _still_good(server: x509.Certificate, ca: x509.Certificate, names: list[str], now: dt.datetime) -> bool:
    try:
        server.verify_directly_issued_by(ca)
        own = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001  whatever is wrong with it: it is made again
        return False
    wanted = x509.SubjectAlternativeName(_general(names))
    return own == wanted and _days_left(server, now) >= RENEW_SERVER_DAYS


def _general(names: list[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _new_authority(files: Files, now: dt.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Weir CA {x509.random_serial_number():x}"[:32])])
    builder = _builder(name, name, key.public_key(), now, CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    _write(files.ca_key, files.ca, key, certificate)
    return certificate, key


def _new_server(
    files: Files,
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    names: list[str],
    now: dt.datetime,
) -> None:
    ca, ca_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = _builder(subject, ca.subject, key.public_key(), now, SERVER_DAYS)
    builder = builder.add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    _write(files.key, files.certificate, key, builder.sign(ca_key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write(key_path: Path, path: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    form = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
    write_whole(key_path, text, 0o600)
    write_whole(path, certificate.public_bytes(serialization.Encoding.PEM).decode(), 0o644)


def _check_given(files: Files, now: dt.datetime) -> list[str]:
    """The operator's own files: what cannot work is refused before anything is started."""
    try:
        chain = x509.load_pem_x509_certificates(files.certificate.read_bytes())
        private = serialization.load_pem_private_key(files.key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise CliError(
            f"The proxy's certificate {files.certificate} or its private key {files.key} cannot be used: {error} "
            "(PEM, the key without a password; certificate and private_key of [proxy] in weir.toml)."
        ) from None
    spki = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*spki) != chain[0].public_key().public_bytes(*spki):
        raise CliError(f"The private key {files.key} is not that of the first certificate in {files.certificate}.")
    left = _days_left(chain[0], now)
    if left < 0:
        raise CliError(f"The certificate {files.certificate} has ended on {chain[0].not_valid_after_utc:%Y-%m-%d}.")
    return [f"the certificate {files.certificate} ends in {left} days"] if left < WARN_DAYS else []
