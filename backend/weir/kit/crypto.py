"""Secrets: hashes of keys, encryption of role passwords at rest, SCRAM verifiers for Postgres."""

import base64
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

API_KEY_PREFIX = "weir_"
SCRAM_ITERATIONS = 4096


def new_api_key() -> str:
    return API_KEY_PREFIX + secrets.token_urlsafe(32)


def new_password() -> str:
    return secrets.token_urlsafe(18)


def hash_token(token: str) -> bytes:
    """Keys and session tokens carry 256 random bits, so a plain hash is enough: nothing to guess."""
    return hashlib.sha256(token.encode()).digest()


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """The SCRAM-SHA-256 verifier that Postgres stores in pg_authid.

    Computed here so that no clear password ever travels to a compute. Generated passwords are ASCII, for
    which SASLprep changes nothing.
    """
    salt = salt or os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, SCRAM_ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{salt64}${stored64}:{server64}"


class SecretBox:
    """Encrypts secrets, such as roles' passwords, before they reach the metadata database."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    @classmethod
    def open(cls, secrets_dir: Path) -> "SecretBox":
        path = secrets_dir / "encryption_key"
        try:
            return cls(path.read_bytes().strip())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is missing, so stored role passwords cannot be read; "
                "run `weir-admin migrate` on a new installation, or restore the file from a backup"
            ) from None

    def seal(self, text: str) -> bytes:
        return self._fernet.encrypt(text.encode())

    def unseal(self, sealed: bytes) -> str:
        return self.unseal_bytes(sealed).decode()

    def seal_bytes(self, content: bytes) -> bytes:
        return self._fernet.encrypt(content)

    def unseal_bytes(self, sealed: bytes) -> bytes:
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken as error:
            raise ValueError("a stored password was sealed with another encryption key") from error


def write_secret_once(path: Path, content: bytes) -> bytes:
    """Creates a secret file unless it exists; what is in the file afterwards is the answer. The folder of a file that
    exists may be read-only, as where secrets are mounted."""
    if path.exists():
        return path.read_bytes().strip()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # A hard link fails when the name exists: of two first starts at once, one key wins for both.
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    return path.read_bytes().strip()


def ensure_secrets(secrets_dir: Path) -> str:
    """Creates what an installation needs and answers with the bootstrap API key."""
    write_secret_once(secrets_dir / "encryption_key", Fernet.generate_key())
    return write_secret_once(secrets_dir / "api_key", new_api_key().encode()).decode()
