"""To each service its secrets: what one can read, another cannot, and what is replaced stays its reader's."""

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from weir.cli import doctor as doctors
from weir.cli import folders, keys, ownership, proofs, service_users
from weir.cli import installation as installations
from weir.cli.files import write_whole
from weir.cli.installation import Installation
from weir.cli.service_users import PARTS, SERVICES, SIZE, STORAGE
from weir.kit import users
from weir.tokens import parts
from weir.tokens.files import write_private
from weir.tokens.keys import KeyFiles, read_signing_key

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives services users of their own")
POOL = range(53_300, 53_300 + SIZE)


@pytest.fixture(name="made")
def _made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    for part in (tmp_path, *tmp_path.parents):
        if part.is_relative_to("/tmp") and part != Path("/tmp"):  # noqa: S108
            part.chmod(part.stat().st_mode | 0o011)
    monkeypatch.setattr(users, "USERS_DIR", tmp_path / "users")
    monkeypatch.setenv("WEIR_SERVICES_USERS", f"{POOL[0]}-{POOL[-1]}")
    monkeypatch.setenv("WEIR_TLS", "true")
    home = tmp_path / "home"
    installations.create(home, 17400)
    service_users.take(home, POOL)
    found = installations.load(home)
    keys.prepare(found)
    proofs.prepare(found)
    write_whole(home / "secrets" / "proxy.key", "of the proxy\n", 0o600)
    (home / "secrets" / "object_store.env").write_text("AWS_SECRET_ACCESS_KEY=s\n")
    (home / "secrets" / "object_store.env").chmod(0o600)
    ownership.prepare(found)
    ownership.prepare_store(found)
    return found


def readable(made: Installation, service: str, path: Path, *more: str) -> bool:
    """By the service's user, in the group of all services and in more."""
    number = made.own_users.of(service)
    groups = [group for name in (PARTS, *more) if (group := made.own_users.group(name)) is not None]
    assert number is not None
    assert len(groups) == 1 + len(more)
    command = ["/bin/cat", str(path)]
    done = subprocess.run(
        command, user=number, group=number, extra_groups=groups, cwd="/", capture_output=True, check=False, timeout=20
    )
    return done.returncode == 0


def test_each_secret_is_read_by_its_service_and_by_no_other(made: Installation) -> None:
    readers = ownership.readers(made)
    files = [path for path in (made.home / "secrets").rglob("*") if path.is_file()]
    assert len(files) > 12
    assert {path for path in readers if path.exists()} <= set(files)
    others = ("api", "postgres", "temporal", "prometheus", "pageserver", "proxy", "safekeeper-1", "safekeeper-2")
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600, path
        allowed = [service for service in others if readable(made, service, path)]
        assert allowed == [service for service in others if readers.get(path) == service], path
    assert {readers.get(made.home / "secrets" / name) for name in ("api_key", "postgres_password")} == {None}
    for service in others:
        assert readable(made, service, made.token_keys_file), "public keys"
    token = ownership.control_plane_token(made.home).read_text()
    assert token == made.proxy_token_file.read_text()


def test_nobody_else_passes_and_no_service_lists(made: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    group = made.own_users.group(PARTS)
    for folder in (made.run_dir, made.home / "secrets", parts.tokens_dir(made.home)):
        found = folder.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, group, 0o710)
    # `weir up` once more, while services run: nothing is closed to them meanwhile.
    installations.create(made.home, None)
    assert made.run_dir.stat().st_mode & 0o777 == 0o710
    doctors.doctor(made.home)
    assert " is private\n" in (said := capsys.readouterr().out)
    assert not [line for line in said.splitlines() if line.startswith("FAIL") and "private" in line]
    assert list(folders.open_to_others(made.home, made.own_users.group(STORAGE))) == []


def test_what_is_replaced_stays_its_readers(made: Installation) -> None:
    files, readers = KeyFiles(made.home), ownership.readers(made)
    before = {path: path.read_text() for path in readers if path.exists()}
    key = files.rotate(time.time, lambda _: None)
    assert parts.renew(key, parts.services(made.home), time.time()) == 3 + len(made.safekeepers)
    write_whole(made.home / "secrets" / "proxy.key", "another\n", 0o600)
    replaced = [path for path, text in before.items() if path.read_text() != text]
    assert len(replaced) == 4 + len(made.safekeepers)
    for path in replaced:
        assert readable(made, readers[path], path), path
        assert path.stat().st_mode & 0o777 == 0o600
    assert readable(made, "safekeeper-2", made.token_keys_file)
    assert read_signing_key(files.private).name == key.name


def test_a_token_in_a_computes_folder_never_goes_to_who_put_a_file_there(made: Installation) -> None:
    folder = made.computes_dir / "ep-some"
    folder.mkdir()
    planted = folder / "token"
    planted.write_text("a database's user's")
    os.chown(planted, 53_999, 53_999)
    spec = {"compute_id": "ep-some", "tenant_id": "0" * 32, "timeline_id": "1" * 32}
    part = parts.compute(folder, spec)
    assert parts.renew(read_signing_key(KeyFiles(made.home).private), [part], time.time()) == 1
    assert (part.file.stat().st_uid, part.file.stat().st_mode & 0o777) == (0, 0o600)


def test_a_new_file_is_its_writers(tmp_path: Path) -> None:
    write_private(tmp_path / "token", "t", durable=False, keeps_owner=True)
    assert (tmp_path / "token").stat().st_uid == 0


def test_the_object_store_is_shared_by_storage_alone(made: Installation) -> None:
    store, group = made.home / "objects", made.own_users.group(STORAGE)
    assert group is not None
    assert (store.stat().st_gid, stat.S_IMODE(store.stat().st_mode)) == (group, 0o2770)
    # An installation of before: root's files, in root's folders.
    os.chown(store, 0, 0)
    store.chmod(0o700)
    (store / "tenant").mkdir(mode=0o700)
    (store / "tenant" / "layer").write_text("pages")
    (store / "tenant" / "layer").chmod(0o600)
    elsewhere = made.home / "elsewhere"
    elsewhere.write_text("root's")
    elsewhere.chmod(0o600)
    (store / "tenant" / "link").symlink_to(elsewhere)
    ownership.prepare_store(made)
    layer = (store / "tenant" / "layer").stat()
    assert (layer.st_gid, stat.S_IMODE(layer.st_mode)) == (group, 0o660)
    assert stat.S_IMODE((store / "tenant").stat().st_mode) == 0o2770
    assert readable(made, "safekeeper-1", store / "tenant" / "layer", STORAGE)
    assert not readable(made, "safekeeper-1", store / "tenant" / "layer"), "no member of the group"
    assert (elsewhere.stat().st_gid, stat.S_IMODE(elsewhere.stat().st_mode)) == (0, 0o600)


def test_a_second_name_of_roots_file_in_a_shared_store_is_not_opened(made: Installation) -> None:
    """Whoever writes the store may have put it there, and waits for the store to get another group."""
    store = made.home / "objects"
    secret = made.home / "elsewhere"
    secret.write_text("root's")
    secret.chmod(0o600)
    os.link(secret, store / "planted")
    (store / "layer").write_text("pages")
    ownership.share(store, 53_998)
    assert (secret.stat().st_gid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o600)
    assert (store / "layer").stat().st_gid == 53_998


def test_services_have_numbers_in_the_settings_range(made: Installation) -> None:
    assert {made.own_users.of(name) for name in SERVICES} < set(POOL)
