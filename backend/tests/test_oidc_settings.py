"""Settings of identity providers, by variables and by weir.toml."""

import tomllib
from pathlib import Path

import pytest

from weir.cli.errors import CliError
from weir.cli.identity_section import variables
from weir.cli.settings_file import TEMPLATE
from weir.oidc.settings import ProviderSettings, domains_of, from_environment
from weir.people.roles import Role

RIGHT = {
    "WEIR_OIDC": "corp",
    "WEIR_OIDC_CORP_ISSUER": "https://login.example.org/realms/a",
    "WEIR_OIDC_CORP_CLIENT_ID": "weir",
}


def test_none_are_named() -> None:
    assert from_environment({"WEIR_HOME": "/x", "WEIR_OIDCX": "y"}) == []
    assert domains_of([]) == frozenset()


def test_what_is_left_out_makes_nobody() -> None:
    (found,) = from_environment(RIGHT)
    assert found == ProviderSettings("corp", "corp", "https://login.example.org/realms/a", "weir")
    assert (found.allowed_domains, found.organization, found.role) == (frozenset(), "", Role.VIEWER)
    assert found.secret() is None


def test_all_settings_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    more = {
        "WEIR_OIDC": "corp, partner",
        "WEIR_OIDC_CORP_NAME": "Example Corp",
        "WEIR_OIDC_CORP_CLIENT_SECRET_FILE": str(secret),
        "WEIR_OIDC_CORP_SCOPES": "openid email",
        "WEIR_OIDC_CORP_ALLOWED_DOMAINS": "Example.org, b.example.org",
        "WEIR_OIDC_CORP_ORGANIZATION": "admin",
        "WEIR_OIDC_CORP_ROLE": "member",
        "WEIR_OIDC_PARTNER_ISSUER": "http://127.0.0.1:9000",
        "WEIR_OIDC_PARTNER_CLIENT_ID": "weir",
    }
    corp, partner = from_environment(RIGHT | more)
    assert (corp.name, corp.scopes, corp.organization, corp.role) == (
        "Example Corp",
        ("openid", "email"),
        "admin",
        Role.MEMBER,
    )
    assert corp.secret() == "s3cret"
    secret.write_text("another")
    assert corp.secret() == "another"
    assert domains_of([corp, partner]) == {"example.org", "b.example.org"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"WEIR_OIDC": "Corp"}, "small letters"),
        ({"WEIR_OIDC": "corp,corp"}, "twice"),
        ({"WEIR_OIDC": ""}, "setting of no provider"),
        ({"WEIR_OIDC_CORP_SECRET": "x"}, "WEIR_OIDC_CORP_SECRET is a setting of no provider"),
        ({"WEIR_OIDC_CORP_ISSUER": ""}, "ISSUER is missing"),
        ({"WEIR_OIDC_CORP_CLIENT_ID": ""}, "CLIENT_ID is missing"),
        ({"WEIR_OIDC_CORP_ISSUER": "http://login.example.org"}, "no issuer"),
        ({"WEIR_OIDC_CORP_ISSUER": "https://login.example.org?x=y"}, "no issuer"),
        ({"WEIR_OIDC_CORP_ISSUER": "https://user:pw@login.example.org"}, "no issuer"),
        ({"WEIR_OIDC_CORP_ISSUER": "https://[x"}, "no issuer"),
        ({"WEIR_OIDC_CORP_CLIENT_SECRET_FILE": "secret"}, "no absolute path"),
        ({"WEIR_OIDC_CORP_SCOPES": "email"}, "openid"),
        ({"WEIR_OIDC_CORP_ALLOWED_DOMAINS": "localhost"}, "no domain"),
        ({"WEIR_OIDC_CORP_ALLOWED_DOMAINS": "10.0.0.1"}, "no domain"),
        ({"WEIR_OIDC_CORP_ALLOWED_DOMAINS": "*.example.org"}, "ALLOWED_DOMAINS"),
        ({"WEIR_OIDC_CORP_ROLE": "owner"}, "none of viewer, member, admin"),
        ({"WEIR_OIDC_CORP_NAME": "a\nb"}, "NAME"),
        (
            {
                "WEIR_OIDC": "corp,again",
                "WEIR_OIDC_AGAIN_ISSUER": RIGHT["WEIR_OIDC_CORP_ISSUER"],
                "WEIR_OIDC_AGAIN_CLIENT_ID": "x",
            },
            "two providers have the issuer",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("*", r"\*")):
        from_environment(RIGHT | changes)


def _told(text: str) -> dict[str, str]:
    return variables(Path("weir.toml"), tomllib.loads(text))


def test_tables_of_weir_toml_become_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
[identity.oidc.corp]
issuer = "https://login.example.org/realms/a"
client_id = "weir"
scopes = ["openid", "email"]
allowed_domains = ["example.org", "b.example.org"]
"""
    assert _told("") == {}
    assert _told(text) == RIGHT | {
        "WEIR_OIDC_CORP_SCOPES": "openid email",
        "WEIR_OIDC_CORP_ALLOWED_DOMAINS": "example.org,b.example.org",
    }
    monkeypatch.setenv("WEIR_OIDC_CORP_CLIENT_ID", "another")
    assert _told(text)["WEIR_OIDC_CORP_CLIENT_ID"] == "another"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[identity]\nsaml = "x"', "no setting 'saml'"),
        ('[identity]\noidc = "x"', "must be a table"),
        ('[identity.oidc.corp]\nissuers = "x"', "no setting 'issuers'"),
        ("[identity.oidc.corp]\nissuer = 1", "must be text"),
        ('[identity.oidc.corp]\nissuer = ["https://x.example"]', "must be text"),
        ('[identity.oidc.corp]\nissuer = "https://x.example"', "CLIENT_ID is missing"),
        ('[identity.oidc.My-Corp]\nissuer = "https://x.example"', "small letters"),
    ],
)
def test_a_wrong_table_of_weir_toml_is_refused(text: str, why: str) -> None:
    with pytest.raises(CliError, match=why):
        _told(text)


def test_the_example_in_the_settings_file_is_right() -> None:
    """As whoever takes away the signs of comment has it."""
    lines = [line.removeprefix("# ") for line in TEMPLATE.splitlines()]
    begin = lines.index("[identity.oidc.corp]")
    example = "\n".join(lines[begin : lines.index("", begin)])
    (found,) = from_environment(_told(example.replace("/absolute/path", "/run/secrets/oidc")))
    assert (found.issuer, found.organization, found.role) == ("https://login.example.org", "admin", Role.VIEWER)
