"""Copies of the server: what runs from one does not notice that its package is replaced."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from weir_testing import programs

from weir import postgres_versions
from weir.config import Settings
from weir_workflows.runtime import servers as module
from weir_workflows.runtime.local import LocalRuntime
from weir_workflows.runtime.package import Package, Placed, ServerCopyError
from weir_workflows.runtime.servers import Servers

INSTALLED = postgres_versions.of_programs(programs.PG_BIN) or ""
NEXT = INSTALLED[:-2] + "99"
PLPGSQL = "DO $$ BEGIN RAISE NOTICE 'loaded'; END $$"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.1)


@pytest.fixture(name="package")
def _package(scratch: Path, request: pytest.FixtureRequest) -> Generator[Path]:
    """The programs of a package of a test's own, which it may upgrade: the system's Postgres, copied."""
    root = scratch / f"package-{request.node.name}" / "usr"
    for part in ("lib", "share"):
        installed = Path("/usr") / part / "postgresql" / "15"
        # Without what only compiles other code: 38 MB less a test.
        leave_out = shutil.ignore_patterns("bitcode", "pgxs", "man")
        shutil.copytree(installed, root / part / "postgresql" / "15", symlinks=True, ignore=leave_out)
    yield root / "lib/postgresql/15/bin"
    shutil.rmtree(root.parent)


@pytest.fixture(name="servers")
def _servers(package: Path) -> Generator[Servers]:
    home = package.parents[4] / "home"
    yield Servers(settings(home, package))
    shutil.rmtree(home, ignore_errors=True)


def settings(home: Path, package: Path) -> Settings:
    return Settings(home=home, pg_bin_dir=package, bin_dir=home / "bin")


def replace(path: Path, content: bytes) -> None:
    """As dpkg does: the new file takes the name, the old one lives on where it is linked to."""
    new = path.with_name(path.name + ".dpkg-new")
    new.write_bytes(content)
    new.chmod(path.stat().st_mode)
    new.replace(path)


def upgrade(package: Path, version: str = NEXT) -> None:
    """Programs that say they are of another minor, and libraries that a server of this one cannot load."""
    for name in ("postgres", "initdb"):
        path = package / name
        replace(path, path.read_bytes().replace(INSTALLED.encode(), version.encode()))
    library = package.parent / "lib" / "plpgsql.so"
    broken = library.read_bytes().replace(b"\0SPI_connect\0", b"\0SPI_cannot_\0")
    assert broken != library.read_bytes()
    replace(library, broken)


def heal(package: Path) -> None:
    replace(package.parent / "lib" / "plpgsql.so", (programs.PG_BIN.parent / "lib" / "plpgsql.so").read_bytes())


@contextmanager
def running(bin_dir: Path, directory: Path) -> Generator[str]:
    """A server of these programs, its data made by them too."""
    directory.mkdir()
    data, port = directory / "data", programs.free_port()
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres")
    initdb = [str(bin_dir / "initdb"), "-D", str(data), "-U", "weir", "-A", "trust", "--no-sync"]
    subprocess.run(programs.unprivileged(initdb), check=True, capture_output=True, cwd="/")
    server = [str(bin_dir / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""]
    with programs.program(programs.unprivileged(server), directory / "log", f"127.0.0.1:{port}"):
        programs.wait_ready(port)
        yield f"host=127.0.0.1 port={port} user=weir dbname=postgres"
    shutil.rmtree(directory)


def test_a_server_run_from_its_package_breaks_when_that_is_upgraded_and_one_from_a_copy_does_not(
    package: Path, servers: Servers, scratch: Path
) -> None:
    copy = servers.provide(None)
    assert (copy.version, copy.bin_dir.is_relative_to(servers.folder)) == (INSTALLED, True)
    with running(copy.bin_dir, scratch / "of-copy") as safe, running(package, scratch / "of-package") as unsafe:
        upgrade(package)
        with psycopg.connect(unsafe) as connection, pytest.raises(psycopg.Error, match="undefined symbol"):
            connection.execute(PLPGSQL)
        with psycopg.connect(safe, autocommit=True) as connection:
            connection.execute(PLPGSQL)
            connection.execute("CREATE EXTENSION hstore")
            connection.execute("SET timezone = 'Europe/Paris'")
            found = connection.execute(
                "SELECT current_setting('server_version'), 'a=>1'::hstore -> 'a',"
                " to_tsvector('english', 'cats')::text,"
                " extract(timezone FROM timestamptz '2026-07-01') FROM pg_timezone_abbrevs LIMIT 1"
            ).fetchone()
            assert found is not None
            assert found[0].split()[0] == INSTALLED
            assert found[1:] == ("1", "'cat':1", 7200)


def test_a_copy_has_the_extensions_on_the_list_and_says_of_others_why_not(
    package: Path, servers: Servers, scratch: Path
) -> None:
    """An owner of a database creates what is trusted: here one that a package of somebody else's brings, and one in a
    version that nobody has examined."""
    folder = package.parents[3] / "share/postgresql/15/extension"
    (folder / "brought.control").write_text("default_version = '1.0'\ntrusted = true\n")
    (folder / "brought--1.0.sql").write_text("ALTER ROLE app SUPERUSER;\n")
    seg = folder / "seg.control"
    replace(seg, seg.read_bytes().replace(b"'1.4'", b"'9.9'"))
    copy = servers.provide(None)
    assert (folder / "brought--1.0.sql").read_text() == "ALTER ROLE app SUPERUSER;\n"
    with running(copy.bin_dir, scratch / "offered") as uri, psycopg.connect(uri, autocommit=True) as admin:
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE appdb OWNER app")
        with psycopg.connect(f"{uri} user=app dbname=appdb", autocommit=True) as session:
            for name, why in (
                ("brought", "it is not on the list"),
                ("seg", "version 9.9 is not on the list"),
                ("dblink", "it opens connections from within the server"),
            ):
                with pytest.raises(
                    psycopg.errors.InsufficientPrivilege, match=f'not offer the extension "{name}": {why}'
                ):
                    session.execute(f"CREATE EXTENSION {name} CASCADE".encode())
            for version in ("1.0", "1.2"):
                with pytest.raises(psycopg.Error, match="no installation script"):
                    session.execute(f"CREATE EXTENSION dblink VERSION '{version}'".encode())
            session.execute("CREATE EXTENSION pg_trgm VERSION '1.3'")
            session.execute("ALTER EXTENSION pg_trgm UPDATE")
            # What operators check a database with stays the superuser's.
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                session.execute("CREATE EXTENSION amcheck")
            admin.execute("CREATE EXTENSION amcheck")
            # No superuser gets one either, whose rights its script would have.
            with pytest.raises(psycopg.Error, match="not offer"):
                admin.execute("CREATE EXTENSION brought")
        assert admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'").fetchone() == (False,)


def test_a_restart_stays_on_its_minor_and_a_first_start_takes_the_newest(package: Path, servers: Servers) -> None:
    first = servers.provide(None)
    upgrade(package)
    heal(package)
    assert servers.available() == [INSTALLED, NEXT]
    assert servers.provide(INSTALLED) == first
    newest = servers.provide(None)
    assert newest.version == NEXT
    assert postgres_versions.of_programs(newest.bin_dir) == NEXT
    assert servers.versions() == [INSTALLED, NEXT]


def test_a_minor_that_cannot_be_had_any_more_gives_way_to_the_newest(servers: Servers) -> None:
    assert servers.provide("15.1").version == INSTALLED


def test_a_package_whose_parts_do_not_fit_is_not_copied(package: Path, servers: Servers) -> None:
    """An upgrade that got stuck, or one without dpkg: libraries of one minor beside programs of another."""
    first = servers.provide(None)
    upgrade(package)
    assert servers.provide(None) == first
    assert servers.versions() == [INSTALLED]


def test_a_package_that_dpkg_is_at_work_on_is_not_copied(package: Path, servers: Servers) -> None:
    half = package.parent / "lib" / "plpgsql.so.dpkg-new"
    half.write_bytes(b"")
    # Better a database from the package than none.
    assert servers.provide(None).bin_dir == package
    assert servers.versions() == []
    half.unlink()
    assert servers.provide(None).bin_dir != package


def test_a_package_replaced_while_it_is_copied_is_copied_again(
    package: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    placing, times = Package.place, 0

    def disturbed(self: Package, target: Path) -> Placed:
        nonlocal times
        placed = placing(self, target)
        times += 1
        if times == 1:
            heal(package)
        return placed

    monkeypatch.setattr(Package, "place", disturbed)
    assert servers.provide(None).version == INSTALLED
    assert times == 2


def test_what_a_crash_left_unfinished_is_removed_and_made_again(servers: Servers) -> None:
    draft = servers.folder / f".{INSTALLED}.abc"
    (draft / "usr").mkdir(parents=True)
    assert servers.versions() == []
    servers.provide(None)
    assert sorted(entry.name for entry in servers.folder.iterdir()) == [".lock", INSTALLED]


def test_many_starts_at_once_make_one_copy(servers: Servers) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(servers.provide(None).bin_dir)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_copies_are_links_where_they_can_be_and_copies_elsewhere(package: Path, servers: Servers) -> None:
    copy = servers.provide(None)
    assert (copy.bin_dir / "postgres").stat().st_ino == (package / "postgres").stat().st_ino
    elsewhere = Path("/dev/shm") / f"weir-test-{os.getpid()}"  # noqa: S108  another file system
    try:
        copied = Servers(settings(elsewhere, package)).provide(None)
        assert (copied.bin_dir / "postgres").read_bytes() == (package / "postgres").read_bytes()
        assert (copied.bin_dir / "postgres").stat().st_dev != (package / "postgres").stat().st_dev
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


def test_copies_that_nothing_needs_are_removed_and_no_other(package: Path, servers: Servers, scratch: Path) -> None:
    versions = [INSTALLED[:-2] + minor for minor in ("94", "95", "96", "97", "98")]
    for version in versions:
        upgrade_to(package, version)
        assert servers.provide(None).version == version
    running_one, of_metadata, wanted, unused, newest = versions
    (servers.folder / module.METADATA).symlink_to(of_metadata)
    copy = servers.find(running_one)
    assert copy is not None
    with running(copy.bin_dir, scratch / "of-running"):
        assert servers.remove_unused([wanted]) == [], "a start may have taken it just now"
        for version in versions:
            long_ago = time.time() - 2 * module.GRACE_SECONDS
            os.utime(servers.folder / version, (long_ago, long_ago))
        assert servers.remove_unused([wanted]) == [unused]
        assert servers.versions() == [running_one, of_metadata, wanted, newest]
    assert servers.remove_unused([]) == [running_one, wanted]


def upgrade_to(package: Path, version: str) -> None:
    for name in ("postgres", "initdb"):
        replace(package / name, (programs.PG_BIN / name).read_bytes().replace(INSTALLED.encode(), version.encode()))


def test_the_minor_that_is_installed_is_copied_before_anything_needs_it(package: Path, servers: Servers) -> None:
    """The next upgrade of the package may come before the next start."""
    runtime = LocalRuntime(settings(servers.folder.parent, package))
    runtime.keep_servers([])
    assert servers.versions() == [INSTALLED]


def test_a_self_contained_installation_is_copied_too(scratch: Path, package: Path, servers: Servers) -> None:
    """`bin`, `lib` and `share` in one folder, as others than Debian lay Postgres out."""
    prefix = scratch / "prefix"
    shutil.copytree(package, prefix / "bin", symlinks=True)
    shutil.copytree(package.parent / "lib", prefix / "lib")
    shutil.copytree(package.parents[3] / "share/postgresql/15", prefix / "share")
    found = Package.of(prefix / "bin")
    placed = found.place(servers.folder.parent / "copy")
    assert (found.bin, placed.copied) == (Path("bin"), 0)
    assert (servers.folder.parent / "copy/share/postgres.bki").is_file()
    shutil.rmtree(prefix)
    with pytest.raises(ServerCopyError, match="no folder of its own"):
        Package.of(Path("/usr/bin/env").parent)


def test_links_out_of_the_package_become_files_and_links_within_it_stay(package: Path, servers: Servers) -> None:
    """Dictionaries of other packages are links, and would change under a server as well."""
    dictionaries = package.parents[3] / "share/postgresql/15/tsearch_data"
    outside = package.parents[4] / "en_us.dict"
    outside.write_text("1\ncat\n")
    (dictionaries / "en_us.dict").symlink_to(outside)
    copy = servers.provide(None)
    outside.unlink()
    copied = copy.bin_dir.parents[3] / "share/postgresql/15/tsearch_data/en_us.dict"
    assert copied.read_text() == "1\ncat\n"
    assert (copy.bin_dir / "postmaster").readlink() == Path("postgres")
