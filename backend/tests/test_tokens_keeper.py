"""Promise: where parts are containers, one process makes keys and tokens, each token where its part alone sees it;
keys are replaced without a gap; and a process that is told of a folder of keys does not do without."""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import pytest
from test_tokens import SPEC, Clock, checks_out, claims_of, key_of

from weir.config import Settings
from weir.tokens import bearer, commands, keeper, keys, parts
from weir.tokens.keeper import COMPUTES_SECONDS, Keeper, keep
from weir.tokens.keys import OVERLAP_SECONDS, READ_SECONDS, KeyFileError
from weir.tokens.parts import PART_SECONDS
from weir_workflows.runtime import credentials


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(tmp_path: Path, clock: Clock) -> Keeper:
    for name in ("secrets", "run", "tokens/pageserver", "tokens/safekeeper", "tokens/prometheus"):
        (tmp_path / name).mkdir(mode=0o700, parents=True)
    made = Keeper(tmp_path, clock, lambda _: None)
    assert made.tend() == 3
    return made


def tokens(kept: Keeper) -> dict[str, str]:
    return {path.parent.name: path.read_text().strip() for path in kept.folder.glob("tokens/*/token")}


def test_each_part_has_a_token_in_a_folder_of_its_own(kept: Keeper):
    found = tokens(kept)
    assert set(found) == {"pageserver", "safekeeper", "prometheus"}
    assert all(checks_out(token, kept.files.published()) for token in found.values())
    assert claims_of(found["safekeeper"])["rights"] == ["read_wal"]
    for path in (*kept.folder.glob("tokens/*/token"), kept.files.private, kept.files.public):
        assert path.stat().st_mode & 0o777 == 0o600
    # The same tokens as where parts are processes.
    assert [part.grant for part in parts.services_apart(kept.folder)] == [
        part.grant for part in parts.services(kept.folder)
    ]


def test_tokens_are_renewed_at_half_of_their_time_and_the_key_stays(kept: Keeper, clock: Clock):
    before, key = tokens(kept), kept.files.private.read_bytes()
    clock.now += PART_SECONDS / 2 - 1
    assert kept.tend() == 0
    clock.now += 2
    assert kept.tend() == 3
    assert not set(before.values()) & set(tokens(kept).values())
    assert kept.files.private.read_bytes() == key


def test_a_key_that_is_lost_is_made_again_with_the_tokens(kept: Keeper):
    kept.files.private.unlink()
    assert kept.tend() == 3
    assert all(checks_out(token, kept.files.published()) for token in tokens(kept).values())
    assert len(kept.listing()) == 1


def test_a_rotation_lets_the_old_key_count_until_its_tokens_have_expired(kept: Keeper, clock: Clock):
    before, said = tokens(kept), list[str]()
    kept.rotate(said.append, at_once=False)
    assert "count until they have expired" in said[-1]
    after = tokens(kept)
    assert {key_of(token) for token in after.values()} != {key_of(token) for token in before.values()}
    known = kept.files.published()
    assert all(checks_out(token, known) for token in (*before.values(), *after.values()))
    (signs, first), (retiring, second) = kept.listing()
    assert (first, second) == (True, False)
    assert signs.retires is None
    assert retiring.retires == int(clock.now) + OVERLAP_SECONDS
    # It is in the key set while any of its tokens may be valid, and goes by itself.
    clock.now += PART_SECONDS
    kept.tend()
    assert len(kept.listing()) == 2
    clock.now += OVERLAP_SECONDS - PART_SECONDS + 1
    kept.tend()
    assert len(kept.listing()) == 1


def test_a_rotation_at_once_waits_until_computes_have_new_tokens(tmp_path: Path, kept: Keeper, clock: Clock):
    before, waited = tokens(kept), list[tuple[float, int]]()

    def pause(seconds: float) -> None:
        waited.append((seconds, len(kept.files.published())))

    said = list[str]()
    Keeper(tmp_path, clock, pause).rotate(said.append, at_once=True)
    # Both keys are published while parts read them, and while the worker renews.
    assert waited == [(READ_SECONDS, 2), (COMPUTES_SECONDS + READ_SECONDS, 2)]
    assert credentials.LOOK_SECONDS * 2 < COMPUTES_SECONDS
    assert not [token for token in before.values() if checks_out(token, kept.files.published())]
    assert all(checks_out(token, kept.files.published()) for token in tokens(kept).values())


def test_a_rotation_that_broke_off_is_repeated(tmp_path: Path, kept: Keeper, clock: Clock):
    def broken(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Keeper(tmp_path, clock, broken).rotate(lambda _: None, at_once=False)
    kept.tend()
    assert all(checks_out(token, kept.files.published()) for token in tokens(kept).values())
    kept.rotate(lambda _: None, at_once=True)
    assert len(kept.listing()) == 1


def test_keeping_and_rotating_at_the_same_time_leave_good_tokens(tmp_path: Path, kept: Keeper):
    stop = threading.Event()

    def tend() -> None:
        while not stop.is_set():
            kept.tend()

    other = threading.Thread(target=tend)
    other.start()
    try:
        for _ in range(5):
            Keeper(tmp_path, kept.clock, lambda _: time.sleep(0.01)).rotate(lambda _: None, at_once=True)
    finally:
        stop.set()
        other.join(20)
    assert all(checks_out(token, kept.files.published()) for token in tokens(kept).values())
    assert len(kept.listing()) == 1


def test_keeping_goes_on_after_an_error_and_says_when_all_was_well(tmp_path: Path, kept: Keeper):
    alive = tmp_path / "alive"
    kept.files.public.write_text("torn")
    keep(kept, alive, rounds=2)
    assert not alive.exists()
    kept.files.public.unlink()
    keep(kept, alive, rounds=1)
    assert alive.exists()


def test_the_command_makes_lists_and_rotates(
    kept: Keeper, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(commands.VARIABLE, str(kept.folder))
    monkeypatch.setattr(keeper, "COMPUTES_SECONDS", 0)
    monkeypatch.setattr(keeper, "READ_SECONDS", 0)
    monkeypatch.setattr(keys, "READ_SECONDS", 0)

    def run(*words: str) -> int:
        parser = argparse.ArgumentParser()
        commands.add_to(parser)
        return commands.run(parser.parse_args(words))

    first = kept.listing()[0][0].name
    assert run("rotate") == 0
    assert run("list") == 0
    said = capsys.readouterr().out
    assert first in said
    assert "signs" in said
    assert run("rotate", "--at-once") == 0
    assert "2 other key(s) count no longer" in capsys.readouterr().out
    kept.files.private.chmod(0o644)
    assert run("list") == 1
    assert "read by others" in capsys.readouterr().err
    monkeypatch.delenv(commands.VARIABLE)
    assert run("list") == 2
    for path in kept.folder.glob("tokens/*/token"):
        assert path.read_text().strip() not in said


def settings_of(home: Path, folder: Path | None) -> Settings:
    return Settings(home=home, credentials_dir=folder)


def test_the_worker_renews_computes_alone_and_signs_with_the_key_of_the_folder(tmp_path: Path, kept: Keeper):
    home = tmp_path / "home"
    (home / "computes" / "ep-one").mkdir(parents=True)
    parts.record(home, SPEC)
    settings = settings_of(home, kept.folder)
    assert credentials.renew(settings) == 1
    token = (home / "computes" / "ep-one" / "token").read_text().strip()
    assert checks_out(token, kept.files.published())
    assert not (home / "secrets" / "tokens").exists()
    kept.rotate(lambda _: None, at_once=False)
    assert credentials.renew(settings) == 1
    assert key_of((home / "computes" / "ep-one" / "token").read_text()) == kept.listing()[0][0].name


def test_who_is_told_of_a_folder_of_keys_does_not_do_without(tmp_path: Path):
    home = tmp_path / "home"
    assert bearer.signer_for(settings_of(home, None)) is None
    signer = bearer.signer_for(settings_of(home, tmp_path / "nowhere"))
    assert signer is not None
    with pytest.raises(KeyFileError, match="token_key"):
        signer.key()
    with pytest.raises(KeyFileError):
        credentials.renew(settings_of(home, tmp_path / "nowhere"))
