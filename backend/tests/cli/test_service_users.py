"""Services get numbers of their own: no two installations share one, and none changes while its installation is."""

import os
import shutil
from pathlib import Path

import pytest

from weir.cli import doctor as doctors
from weir.cli import installation as installations
from weir.cli import service_users
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.service_users import PARTS, SERVICES, SIZE, STORAGE
from weir.cli.services import services
from weir.kit import users

# Of a range that nothing else on a machine has: two blocks, and a rest that is too small.
POOL = range(53_100, 53_100 + 2 * SIZE + 3)
FIRST, SECOND = POOL[:SIZE], POOL[SIZE : 2 * SIZE]


@pytest.fixture(name="homes")
def _homes(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in ("one", "two", "three")]
    for home in found:
        home.mkdir()
        (home / "weir.toml").touch()
    return found


@pytest.fixture(name="records")
def _records(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture(name="made")
def _made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(users, "USERS_DIR", tmp_path / "users")
    return installations.create(tmp_path / "home", 17400)


def test_an_installation_keeps_its_numbers_and_another_one_gets_others(homes: list[Path], records: Path) -> None:
    assert service_users.take(homes[0], POOL, records) == FIRST
    assert service_users.take(homes[1], POOL, records) == SECOND
    assert [service_users.take(home, POOL, records) for home in homes[:2]] == [FIRST, SECOND]
    with pytest.raises(CliError, match="No block of 18 users") as refused:
        service_users.take(homes[2], POOL, records)
    assert str(homes[0]) in str(refused.value)
    assert str(homes[1]) in str(refused.value)


def test_the_numbers_of_an_installation_that_is_gone_go_to_another_one(homes: list[Path], records: Path) -> None:
    for home in homes[:2]:
        service_users.take(home, POOL, records)
    shutil.rmtree(homes[0])
    assert service_users.take(homes[2], POOL, records) == FIRST
    # What comes back from a backup finds its numbers taken, and gets none of another's.
    homes[0].mkdir()
    (homes[0] / "weir.toml").touch()
    with pytest.raises(CliError, match="No block"):
        service_users.take(homes[0], POOL, records)


def test_numbers_of_accounts_groups_and_processes_are_left_to_them(
    homes: list[Path], records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, known in (("has_account", FIRST[3]), ("has_named_group", FIRST[SIZE - 1])):
        with monkeypatch.context() as patched:
            patched.setattr(users, name, lambda number, known=known: number == known)
            assert service_users.take(homes[0], POOL, records / name) == SECOND
    with monkeypatch.context() as patched:
        patched.setattr(users, "of_processes", lambda: {FIRST[0]})
        assert service_users.take(homes[0], POOL, records / "busy") == SECOND


def test_another_range_in_the_settings_gives_no_number_of_another_installations(
    homes: list[Path], records: Path
) -> None:
    service_users.take(homes[0], POOL, records)
    moved = range(POOL.start + 1, POOL.stop)
    block = service_users.take(homes[1], moved, records)
    assert not set(block) & set(FIRST)


def test_each_service_and_each_group_has_a_number_of_its_own() -> None:
    own = service_users.ServiceUsers(POOL, FIRST)
    numbers = [own.of(name) for name in (*SERVICES, PARTS, STORAGE)]
    assert sorted(number or 0 for number in numbers) == list(FIRST)
    assert service_users.ServiceUsers(POOL).of("api") is None


def test_only_root_can_give_services_users(homes: list[Path], records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    service_users.take(homes[0], POOL, records)
    assert service_users.known(homes[0], POOL, records).numbers == FIRST
    assert service_users.known(homes[1], POOL, records) == service_users.ServiceUsers(POOL)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert service_users.known(homes[0], POOL, records) == service_users.ServiceUsers()


def test_every_service_but_those_that_have_to_be_root_can_have_a_user(made: Installation) -> None:
    as_root = {service.name for service in services(made) if service.own is None}
    assert as_root == {"migrate", "worker", "logs"}
    named = [service.own.user for service in services(made) if service.own is not None]
    assert len(set(named)) == len(named)
    assert set(named) <= set(SERVICES)


def test_up_and_doctor_say_what_is_not_kept_apart(
    made: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = services(made)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    as_anybody = installations.load(made.home)
    (said,) = doctors.together(as_anybody, chosen)
    assert "Weir is not run by root" in said
    for name in ("postgres", "temporal", "safekeeper-1", "pageserver", "api", "prometheus", "proxy"):
        assert name in said
    doctors.doctor(made.home)
    assert f"warn  {said}\n" in capsys.readouterr().out
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (said,) = doctors.together(installations.load(made.home), chosen)
    assert "by the next `weir up`" in said
    made.config_file.write_text(made.config_file.read_text().replace("60578-60705", ""))
    (said,) = doctors.together(installations.load(made.home), chosen)
    assert "[services] users is empty" in said


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("999-2000", "must be numbers A-B"),
        ("5000", "must be numbers A-B"),
        ("5000-5016", "18 at least"),
        ("6000-5000", "must be numbers A-B"),
        ("a-b", "must be numbers A-B"),
        ("60000-65534", "must be numbers A-B"),
        ("60700-60800", "numbers in common"),
        ("61183-61300", "numbers in common"),
    ],
)
def test_senseless_users_are_refused(made: Installation, value: str, message: str) -> None:
    text = made.config_file.read_text()
    made.config_file.write_text(text.replace("60578-60705", value))
    with pytest.raises(CliError, match=message):
        installations.load(made.home)
    made.config_file.write_text(text.replace('users = "60578-60705"', "user = 1"))
    with pytest.raises(CliError, match="no setting 'user'"):
        installations.load(made.home)
