"""Nobody but its owner looks into an installation: not as it is made, and not after `weir up` on an older one."""

import os
from pathlib import Path

import pytest

from weir.cli import doctor as doctors
from weir.cli import folders
from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    return installations.create(tmp_path / "home", 17400)


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_an_installation_is_made_closed_whatever_the_umask(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    before = os.umask(umask)
    try:
        made = installations.create(tmp_path / "home", 17400)
    finally:
        os.umask(before)
    assert mode(made.home) == mode(made.computes_dir) == 0o711
    assert {mode(made.home / name) for name in ("secrets", "run", "log")} == {0o700}
    assert list(folders.open_to_others(made.home)) == []


def test_an_older_installation_is_closed_by_up_and_reported_by_doctor(
    made: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    running = made.computes_dir / "ep-running"
    opened = [made.home / name for name in ("objects", "pageserver", "safekeeper-1")]
    for folder in (*opened, running):
        folder.mkdir()
        folder.chmod(0o755)
    (made.home / "tls").mkdir(mode=0o755)
    made.home.chmod(0o755)
    doctors.doctor(made.home)
    said = capsys.readouterr().out
    for folder in (made.home, *opened, running):
        assert f"FAIL  other users can look into {folder}\n" in said
    assert f"look into {made.home / 'tls'}" not in said, "clients read the CA's certificate"
    assert set(folders.close(made.home)) == {made.home, *opened, running}
    # The user of a compute that runs comes through still.
    assert {mode(folder) for folder in (made.home, *opened, running)} == {0o711}
    assert folders.close(made.home) == []
    doctors.doctor(made.home)
    assert "ok    no other user can look into the installation's folders" in capsys.readouterr().out


def test_a_link_in_an_installation_is_not_followed(made: Installation, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (made.computes_dir / "ep-link").symlink_to(elsewhere)
    (made.home / "objects").symlink_to(elsewhere)
    assert folders.close(made.home) == []
    assert mode(elsewhere) == 0o755


def test_computes_get_users_of_their_own_from_root_alone(
    made: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 'users = "60706-61183"' in made.config_file.read_text()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert installations.load(made.home).environment()["WEIR_COMPUTE_USERS"] == "60706-61183"
    assert made.shared_user == ""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert installations.load(made.home).environment()["WEIR_COMPUTE_USERS"] == ""
    assert "not run by root" in made.shared_user
    doctors.doctor(made.home)
    assert "warn  Weir is not run by root, so all computes and Weir itself share one user" in capsys.readouterr().out
    # Settings of before there were users have them as new ones do; who wants none says so.
    text = made.config_file.read_text()
    made.config_file.write_text(text.replace('users = "60706-61183"\n', ""))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert installations.load(made.home).compute_users == "60706-61183"
    made.config_file.write_text(text.replace("60706-61183", ""))
    without = installations.load(made.home)
    assert without.environment()["WEIR_COMPUTE_USERS"] == ""
    assert "all computes share the user postgres" in without.shared_user


@pytest.mark.parametrize("value", ["0-10", "999-2000", "5000", "5000-", "6000-5000", "60000-65534", "a-b", "-1-5000"])
def test_senseless_users_are_refused(made: Installation, value: str) -> None:
    made.config_file.write_text(made.config_file.read_text().replace("60706-61183", value))
    with pytest.raises(CliError, match="must be numbers A-B from 1000 to 65533"):
        installations.load(made.home)
