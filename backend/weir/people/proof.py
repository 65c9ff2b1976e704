"""What a request has of the person who sends it: password and code, and where it came from."""

from fastapi import Request

from weir.authz.principal import Principal, address_of
from weir.config import get_settings
from weir.errors import request_id_of
from weir.kit.clock import now
from weir.kit.crypto import SecretBox
from weir.people.own import Own
from weir.people.sign_in import Attempt
from weir.people.sign_in_schemas import PasswordProof


def attempt_of(request: Request, email: str, password: str, code: str | None) -> Attempt:
    return Attempt(email, password, code, address_of(request), request_id_of(request), now())


def own_of(request: Request, principal: Principal, body: PasswordProof) -> Own:
    """What the caller changes of themselves, once the password and the code of `body` are proven."""
    attempt = attempt_of(request, principal.email, body.password.get_secret_value(), body.code)
    return Own(request.app.state.database, SecretBox.open(get_settings().secrets_dir), attempt)
