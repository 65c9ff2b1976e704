from weir.kit.schemas import View


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
