"""Bodies of signing in, and of what people change of themselves."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import ConfigDict, Field, SecretStr, StringConstraints

from weir.kit.schemas import Body, View
from weir.people.passwords import FEWEST, MOST
from weir.people.schemas import Email

Password = Annotated[SecretStr, Field(min_length=1, max_length=MOST)]
NewPassword = Annotated[SecretStr, Field(min_length=FEWEST, max_length=MOST)]
Code = Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Za-z0-9 -]*$")]


class Secret(Body):
    """A body with a password, which is taken as it is, with the spaces around it."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=False)


class SignInRequest(Secret):
    """`code`: of the second factor, six digits or a recovery code."""

    email: Email
    password: Password
    code: Code | None = None


class PasswordProof(Secret):
    password: Password
    code: Code | None = None


class PasswordChange(PasswordProof):
    new_password: NewPassword


class TotpCode(Body):
    code: Code


class TotpSecret(View):
    """Shown once: `secret` in base 32, `uri` for a QR code."""

    secret: str
    uri: str


class RecoveryCodes(View):
    """Each stands in for one code. Shown once."""

    recovery_codes: list[str]


class SessionItem(View):
    """`address`: of the client that signed in. `current`: the one that asks."""

    id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str
    current: bool


class Sessions(View):
    sessions: list[SessionItem]
