"""What `make bench-security` switches off is what it says, and its verdict what the figures of pairs of runs say."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import security
from weirbench.parts import part_name
from weirbench.security import OFF, ON, SWITCHES, Start
from weirbench.write.workloads import Run

from weir.cli import installation as installations
from weir.cli import prometheus_files

PARENTS = """\
9:name=systemd:/
8:pids:/
7:cpu,cpuacct:/
4:memory:/somebody/has/limits
0::/
"""


def run(arm: str, per_second: float, p50: float = 2.0, workload: str = "tpcb", clients: int = 1) -> Run:
    return Run(
        arm, workload, clients, 10.0, 1000, "transactions", 1000, per_second, p50, 4 * p50, 0, {"compute": 90.0}
    )


@pytest.fixture(name="home")
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    installations.create(tmp_path / "home", 17400)
    return tmp_path / "home"


def test_what_is_switched_off_is_off_in_a_new_installation_and_nothing_else_changes(home: Path) -> None:
    file = home / "weir.toml"
    before = file.read_text()
    text = security.with_settings(before, {setting: off for setting, (off, _) in SWITCHES.items()})
    was, now = tomllib.loads(before), tomllib.loads(text)
    for (section, name), (off, _) in SWITCHES.items():
        assert now[section].pop(name) == off
        was[section].pop(name)
    assert now == was
    file.write_text(text)
    installation = installations.load(home)
    assert not installation.has_tls
    assert (installation.compute_users, installation.compute_cgroup, installation.own_users.pool) == ("", "", None)
    assert "https" not in prometheus_files.config(installation)
    on = {("security", "tls"): True, ("computes", "cgroup"): "/some", ("computes", "max_cu"): 4}
    file.write_text(security.with_settings(before, on))
    installation = installations.load(home)
    assert (installation.has_tls, installation.compute_cgroup, installation.compute_max_cu) == (True, "/some", 4)


def test_a_switch_that_the_settings_do_not_have_is_an_error(home: Path) -> None:
    text = (home / "weir.toml").read_text()
    with pytest.raises(ValueError, match=r"\[security\] tokens"):
        security.with_settings(text, {("security", "tokens"): False, ("security", "tls"): False})
    # A name of another section is none of this one's.
    with pytest.raises(ValueError, match=r"\[proxy\] tls"):
        security.with_settings(text, {("proxy", "tls"): False})


def test_groups_are_made_only_where_no_limits_are_left(tmp_path: Path) -> None:
    found = security.group_parents(PARENTS, tmp_path)
    assert found == [tmp_path / "pids", tmp_path / "cpu", tmp_path]
    assert security.group_parents("0::/session.slice\n", tmp_path) == []


def test_each_arm_is_first_as_often_as_the_other() -> None:
    rounds = [security.arms_in(number) for number in range(1, 7)]
    assert [arms[0] for arms in rounds].count(ON) == 3
    assert all(set(arms) == {ON, OFF} for arms in rounds)


def test_ratios_are_of_runs_of_the_same_round() -> None:
    """The machine is half as fast in the second round: both arms are, and the ratio says nothing of it."""
    runs = [run(ON, 960), run(OFF, 1000), run(OFF, 500, p50=4.0), run(ON, 480, p50=5.0), run(ON, 990), run(OFF, 1000)]
    found = security.compared(runs)["tpcb/1"]
    assert found["rounds"] == 3
    assert found["ratios"]["rate"] == {"median": 0.96, "min": 0.96, "max": 0.99}
    assert found["ratios"]["p50"] == {"median": 1.0, "min": 1.0, "max": 1.25}
    assert found["arms"][ON]["per_second"] == {"median": 960, "min": 480, "max": 990}
    assert found["arms"][OFF]["cpu_us_per_transaction"] == 90.0
    with pytest.raises(ValueError, match="shorter"):
        security.compared(runs[:-1])


@pytest.mark.parametrize(("per_second", "kept"), [(950.0, True), (949.0, False), (1100.0, True)])
def test_writes_keep_their_promise_to_the_twentieth_part(per_second: float, kept: bool) -> None:
    workloads = security.compared([run(ON, per_second), run(OFF, 1000.0)])
    found = security.verdict(workloads, None)
    assert (found["writes_kept"], found["kept"]) == (kept, kept)
    assert "start_kept" not in found


def test_one_workload_that_takes_too_much_breaks_the_promise_of_all() -> None:
    runs = [run(ON, 1000), run(OFF, 1000), run(ON, 900, clients=16), run(OFF, 1000, clients=16)]
    found = security.verdict(security.compared(runs), None)
    assert found["share_taken"] == {"tpcb/1": 0.0, "tpcb/16": 0.1}
    assert not found["kept"]


@pytest.mark.parametrize(("on", "kept"), [(350.0, True), (351.0, False), (280.0, True)])
def test_a_start_may_take_fifty_milliseconds_more(on: float, kept: bool) -> None:
    workloads = security.compared([run(ON, 1000), run(OFF, 1000)])
    # The last start of a round is an outlier, which its median leaves out.
    starts = [Start(ON, 1, on), Start(OFF, 1, 300.0), Start(ON, 1, on), Start(OFF, 1, 300.0), Start(ON, 1, 9000.0)]
    starts.append(Start(OFF, 1, 10.0))
    found = security.verdict(workloads, security.started(starts))
    assert (found["start_added_ms"], found["start_kept"], found["kept"]) == (on - 300, kept, kept)
    shown = security.lines(workloads, security.started(starts))
    assert len({len(row) for row in shown}) == 1
    assert ("NOT kept" in shown[-1]) is not kept


def test_a_port_says_which_part_is_meant() -> None:
    names = {"pageserver_http": "pageserver", "pageserver_pages": "pageserver", "safekeeper_2_wal": "safekeeper-2"}
    assert {port: part_name(port) for port in names} == names
    assert part_name("agent:ep-quiet-river-a1b2") == "ep-quiet-river-a1b2.compute"
