"""`weir encryption` and what `weir up` does about keys: a lost file is never replaced, and no step loses a key."""

import json
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from weir.cli import encryption
from weir.cli import installation as installations
from weir.cli.encryption import data_keys, named, prepare, read, render, retire, rotate
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.services import services

TOOL = """#!/bin/sh
# Data keys, as the real program has them: `state` says by which key each is wrapped.
state="{state}"
case "$2" in
list) cat "$state" ;;
rewrap)
  newest=$(tail -n 2 "$4" | head -n 1 | cut -d ' ' -f 1)
  {rewrap}
  echo '{{"wrapped": 1, "failures": []}}' ;;
esac
"""
REALLY = """sed -i "s/\\"wrapped_by\\": \\"[0-9a-f]*\\"/\\"wrapped_by\\": \\"$newest\\"/" "$state\""""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("WEIR_BIN_DIR", str(programs))
    monkeypatch.setenv("WEIR_TOOLS_DIR", str(programs))
    for name in ("temporal", "process-compose", "prometheus"):
        (programs / name).touch()
    monkeypatch.delenv("WEIR_OBJECT_STORE", raising=False)
    monkeypatch.delenv("WEIR_COMPUTE_RUNTIME", raising=False)
    monkeypatch.delenv("WEIR_STORAGE_ENCRYPTION", raising=False)
    installation = installations.create(tmp_path / "home", 17400)
    (installation.home / "objects").mkdir()
    text = installation.config_file.read_text()
    assert "\nencryption = false\n" in text
    installation.config_file.write_text(text.replace("\nencryption = false\n", "\nencryption = true\n"))
    program(installation, [])
    return installations.load(installation.home)


def program(installation: Installation, wrapped_by: list[str], rewrap: str = REALLY) -> None:
    """A stand-in for `weir-pageserver keys`, on data keys that these keys have wrapped."""
    state = installation.home / "state.json"
    state.write_text(json.dumps([{"tenant": f"{n:032x}", "wrapped_by": key} for n, key in enumerate(wrapped_by)]))
    path = installation.bin_dir / "weir-pageserver"
    path.write_text(TOOL.format(state=state, rewrap=rewrap))
    path.chmod(0o755)


def words(installation: Installation) -> dict[str, Sequence[str]]:
    return {service.name: service.command for service in services(installation)}


def test_a_key_file_is_made_once_for_its_owner_only(made: Installation, capsys: pytest.CaptureFixture[str]):
    prepare(made)
    text = made.storage_keys.read_text()
    assert stat.S_IMODE(made.storage_keys.stat().st_mode) == 0o600
    [key] = read(made.storage_keys)
    assert len(key.secret) == 32
    shown = capsys.readouterr().out
    assert key.name in shown
    assert "keep a copy" in shown
    assert key.secret.hex() not in shown + repr(key)
    prepare(made)
    assert made.storage_keys.read_text() == text


def test_the_text_is_what_the_storage_reads():
    """The id is the one that the engine makes of the same key (storage/crates/encryption/tests/keys.rs)."""
    key = named(bytes([1]) * 32)
    assert render([key]) == f"weir-encryption-keys 1\n{key.name} {'01' * 32}\nend 1\n"
    assert key.name == "d8b3b0618d518ef7"


def test_a_lost_key_file_is_not_replaced(made: Installation):
    prepare(made)
    [key] = read(made.storage_keys)
    program(made, [key.name])
    made.storage_keys.unlink()
    with pytest.raises(CliError, match=r"1 project\(s\).*Put the right one back"):
        prepare(made)
    assert not made.storage_keys.exists()


@pytest.mark.parametrize("bad", ["", "weir-encryption-keys 1\n", "cut", "digit", "open"])
def test_a_torn_or_open_key_file_is_refused(made: Installation, bad: str):
    prepare(made)
    text = made.storage_keys.read_text()
    changed = {"cut": text[:-7], "digit": text.replace("end 1", "end 2"), "open": text}.get(bad, bad)
    made.storage_keys.write_text(changed)
    if bad == "open":
        made.storage_keys.chmod(0o644)
    with pytest.raises(CliError, match=r"torn|read by others"):
        prepare(made)
    assert made.storage_keys.read_text() == changed


def test_services_get_the_keys_and_nobody_else(made: Installation):
    prepare(made)
    told = words(made)
    wanted = f"--key-file {made.storage_keys} --encrypt"
    for name in ("pageserver", "safekeeper-1", "safekeeper-2", "safekeeper-3"):
        assert wanted in " ".join(told[name])
    for name, command in told.items():
        assert name.startswith(("pageserver", "safekeeper")) or str(made.storage_keys) not in command
    assert str(made.storage_keys) not in " ".join(made.environment().values())
    # Off again: what is encrypted is read on.
    made.config_file.write_text(made.config_file.read_text().replace("encryption = true", "encryption = false"))
    off = words(installations.load(made.home))["pageserver"]
    assert "--key-file" in off
    assert "--encrypt" not in off


def test_nothing_is_told_where_nothing_was_ever_encrypted(made: Installation):
    made.config_file.write_text(made.config_file.read_text().replace("encryption = true", "encryption = false"))
    installation = installations.load(made.home)
    prepare(installation)
    assert not installation.storage_keys.exists()
    assert all("--key-file" not in command for command in words(installation).values())


@pytest.mark.parametrize("value", ['"maybe"', "1"])
def test_the_setting_is_checked(made: Installation, value: str):
    made.config_file.write_text(made.config_file.read_text().replace("encryption = true", f"encryption = {value}"))
    with pytest.raises(CliError, match="must be true or false"):
        installations.load(made.home)


def test_a_rotation_adds_a_key_and_retiring_takes_the_old_one(made: Installation):
    prepare(made)
    [first] = read(made.storage_keys)
    program(made, [first.name])
    second = rotate(made)
    assert [key.name for key in read(made.storage_keys)] == [first.name, second.name]
    assert data_keys(made)[0]["wrapped_by"] == second.name
    assert [key.name for key in retire(made)] == [first.name]
    assert [key.name for key in read(made.storage_keys)] == [second.name]
    assert retire(made) == []
    assert stat.S_IMODE(made.storage_keys.stat().st_mode) == 0o600


def test_no_key_is_taken_out_that_a_project_needs(made: Installation):
    prepare(made)
    [first] = read(made.storage_keys)
    # A program that wraps nothing: as if a project had come between.
    program(made, [first.name], rewrap=":")
    second = rotate(made)
    with pytest.raises(CliError, match=first.name):
        retire(made)
    assert [key.name for key in read(made.storage_keys)] == [first.name, second.name]


def test_a_project_that_comes_while_a_key_is_taken_out_gets_it_back(
    made: Installation, monkeypatch: pytest.MonkeyPatch
):
    prepare(made)
    [first] = read(made.storage_keys)
    program(made, [first.name])
    second = rotate(made)
    looks = iter([[{"wrapped_by": second.name}], [{"wrapped_by": first.name}]])
    monkeypatch.setattr(encryption, "data_keys", lambda _: next(looks))
    with pytest.raises(CliError, match=first.name):
        retire(made)
    assert [key.name for key in read(made.storage_keys)] == [first.name, second.name]
