from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from weir.kit.schemas import View
from weir.people.sign_in_schemas import PasswordProof

_OfLink = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=r"^[^\x00]+$")]


class AuthProvider(View):
    """An identity provider that people may sign in by. `start_url`: where the browser goes, with `?next=` and the
    page that it comes back to."""

    id: str
    name: str
    start_url: str


class AuthProviders(View):
    providers: list[AuthProvider]


class ProviderLogout(View):
    """`url`: where the browser goes to end the session at the provider, too; null where there is none to end."""

    url: str | None


class ProviderLink(View):
    """The caller as an identity provider knows them. `provider_id` and `name` are null where the settings have no
    such provider any more, and nobody signs in by the link. `email`: of when the link was made, as the provider had
    it, or as it is here where the provider named none."""

    issuer: str
    subject: str
    provider_id: str | None
    name: str | None
    email: str
    linked_at: datetime


class ProviderLinks(View):
    links: list[ProviderLink]


class ProviderLinkBegun(View):
    """`url`: where the browser goes next, to sign in at the provider."""

    url: str


class ProviderLinkEnd(PasswordProof):
    """`issuer` and `subject`: of the link, as `GET /auth/links` has them."""

    issuer: _OfLink
    subject: _OfLink
