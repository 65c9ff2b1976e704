"""Where groups of computes can be made, by the kernel's table of mounts and what lies below its mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weir.cli import doctor as doctors
from weir.cli import installation as installations
from weir.cli import sections
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.kit import cgroups


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    return installations.create(tmp_path / "home", 17400)


def table(*mounts: tuple[Path, str, str]) -> str:
    lines = ["22 27 0:21 / /proc rw,relatime - proc proc rw"]
    lines += [f"35 31 0:32 / {path} rw,relatime shared:7 - {kind} {kind} {options}" for path, kind, options in mounts]
    return "\n".join(lines)


def group(mount: Path, controllers: str | None = None) -> Path:
    made = mount / "weir"
    made.mkdir(parents=True)
    if controllers is not None:
        (made / "cgroup.controllers").write_text(controllers + "\n")
    return made


def test_the_second_kind_goes_first_and_the_first_has_what_it_lacks(tmp_path: Path) -> None:
    unified, memory, pids = (tmp_path / name for name in ("unified", "memory", "pids"))
    second, first = group(unified, "cpu memory"), group(pids)
    group(memory)
    mounts = table(
        (memory, "cgroup", "rw,memory"), (pids, "cgroup", "rw,pids"), (unified, "cgroup2", "rw,nsdelegate")
    )
    assert cgroups.places("/weir", mounts) == {"cpu": second, "memory": second, "processes": first}


def test_a_group_that_nobody_has_made_bounds_nothing(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    assert cgroups.places("/weir", table((memory, "cgroup", "rw,memory"))) == {}
    assert list(memory.iterdir()) == [], "nothing was made by looking"


def test_controllers_that_share_a_mount_share_the_group(tmp_path: Path) -> None:
    shared = group(tmp_path / "cpu,cpuacct")
    mounts = table((shared.parent, "cgroup", "rw,cpu,cpuacct"))
    assert cgroups.places("/weir", mounts) == {"cpu": shared}


def test_without_a_group_nothing_is_removed() -> None:
    assert cgroups.remove("", "ep-quiet-river-a1b2c3") is False


@pytest.mark.parametrize("value", ["/weir", "/system.slice/weir.service/computes", ""])
def test_names_of_groups_are_taken(value: str) -> None:
    assert sections.cgroup(Path("weir.toml"), {"computes": {"cgroup": value}}) == value


@pytest.mark.parametrize("value", ["weir", "/", "/weir/", "/a/../b", "/..", "/a b", "//a", 7])
def test_other_names_are_refused(value: object) -> None:
    with pytest.raises(CliError, match="control group of computes"):
        sections.cgroup(Path("weir.toml"), {"computes": {"cgroup": value}})


def test_what_nothing_bounds_is_said_with_the_reason(
    made: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert doctors.unbounded(made) == [
        "nothing bounds what computes take of this machine: [computes] cgroup is empty"
    ]
    made.config_file.write_text(made.config_file.read_text().replace('cgroup = ""', 'cgroup = "/weir"'))
    named = installations.load(made.home)
    assert named.environment()["WEIR_COMPUTE_CGROUP"] == "/weir"
    memory = group(tmp_path / "memory")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(table((memory.parent, "cgroup", "rw,memory")))
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    reasons = doctors.unbounded(named)
    assert len(reasons) == 3
    assert "processor time: no control group /weir that Weir can write to has the controller cpu" in reasons[0]
    doctors.doctor(named.home)
    said = capsys.readouterr().out
    assert "ok    computes are bounded by control groups below /weir: memory\n" in said
    assert said.count("warn  nothing bounds what computes take of") == 3
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert installations.load(made.home).environment()["WEIR_COMPUTE_CGROUP"] == ""
    assert "Weir is not run by root" in doctors.unbounded(named)[0]


def test_what_a_killed_agent_leaves_is_removed_and_what_others_have_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(table(*((tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "pids"))))
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    groups = [group(tmp_path / name) for name in ("memory", "pids")]
    for below in groups:
        (below / "ep-dead").mkdir()
        (below / "ep-alive").mkdir()
    assert cgroups.remove("/weir", "ep-dead")
    assert [sorted(entry.name for entry in below.iterdir()) for below in groups] == [["ep-alive"]] * 2
    assert not cgroups.remove("/weir", "ep-dead"), "there is nothing left to remove"
