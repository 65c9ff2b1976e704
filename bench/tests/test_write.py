"""What a run used is counted by process trees, and what rounds gave is summed up by workload."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matplotlib import image
from weirbench import charts
from weirbench.write.usage import measure
from weirbench.write.workloads import Run
from write import merged, summary

SPIN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_cpu_time_of_children_counts_while_they_run_and_after_they_have_ended():
    child = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {SPIN!r}])"
    program = f"{child}\nprint('done', flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        try:
            before = measure({"parent": [parent.pid], "nobody": [2**22 + 1]})
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"done\n"
            used = measure({"parent": [parent.pid], "nobody": [2**22 + 1]}).since(before)
        finally:
            parent.kill()
    assert used.cpu_seconds["parent"] >= 0.25
    assert used.cpu_seconds["nobody"] == 0
    assert used.context_switches > 0


def test_a_first_process_of_another_group_counts_there_alone():
    """The worker of a control plane is the parent of the computes that it starts."""
    child = f"import time\n{SPIN}\nprint('done', flush=True)\ntime.sleep(60)"
    program = (
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\nsys.stdin.read()\nchild.kill()\nchild.wait()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        groups = {"parent": [parent.pid], "child": [int(parent.stdout.readline())]}
        before = measure(groups)
        assert parent.stdout.readline() == b"done\n"
        used = measure(groups).since(before)
        parent.communicate(timeout=20)
    assert used.cpu_seconds["child"] >= 0.2
    assert used.cpu_seconds["parent"] < 0.1


def test_written_bytes_are_those_that_reach_the_disk(tmp_path: Path):
    groups = {"own": [os.getpid()]}
    before = measure(groups)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        os.fsync(file.fileno())
    time.sleep(0.05)
    assert measure(groups).since(before).written_bytes["own"] in (0, *range(1 << 20, 1 << 22))


def run(arm: str, per_second: float) -> Run:
    return Run(arm, "tpcb", 4, 20, 100, "transactions", 100, per_second, 1.0, 2.0, 300.0, {"postgres": 50.0})


def test_ratios_are_of_medians_and_only_of_arms_that_ran():
    runs = [run("standby", rate) for rate in (90, 100, 500)] + [run("weir_pushdown", rate) for rate in (50, 120, 60)]
    found = summary(runs)["tpcb/4"]
    assert found["ratios"] == {"pushdown_vs_standby": 0.6}
    assert found["rounds"] == 3
    assert found["arms"]["standby"]["per_second"] == {"median": 100, "min": 90, "max": 500}
    assert found["arms"]["standby"]["cpu_us_per_transaction"] == {"postgres": 50}


def test_a_run_of_one_workload_leaves_the_others_with_their_own_settings():
    first = merged({}, {"at": "monday", "rounds": 1}, [run("standby", 100), run("weir_pushdown", 60)])
    select = replace(run("standby", 900), workload="select", clients=16)
    second = merged(first, {"at": "tuesday", "rounds": 5}, [select])
    assert list(second["workloads"]) == ["select/16", "tpcb/4"]
    assert second["workloads"]["tpcb/4"] == first["workloads"]["tpcb/4"]
    assert second["workloads"]["tpcb/4"]["settings"]["at"] == "monday"
    assert second["workloads"]["select/16"]["settings"] == {"at": "tuesday", "rounds": 5}
    third = merged(second, {"at": "friday", "rounds": 5}, [run("standby", 200)])
    assert third["workloads"]["tpcb/4"]["arms"].keys() == {"standby"}
    assert [each["per_second"] for each in third["runs"]] == [900, 200]


def test_a_result_without_settings_by_workload_is_taken_over():
    old = {"settings": {"at": "sunday"}, "workloads": {"copy/1": {"rounds": 1}}, "runs": []}
    found = merged(old, {"at": "monday"}, [run("standby", 100)])
    assert found["workloads"]["copy/1"] == {"settings": {"at": "sunday"}, "rounds": 1}


def test_the_chart_shows_a_bar_for_each_arm(tmp_path: Path):
    rates = {"median": 10.0, "min": 9.0, "max": 11.0}
    found = {"arms": {arm: {"per_second": rates} for arm in ("stock", "weir_images")}, "unit": "rows/s"}
    charts.write_rates({"copy/1": found}, tmp_path / "chart.png")
    pixels = image.imread(tmp_path / "chart.png")
    blue = (pixels[..., 2] - pixels[..., 0]) > 0.3
    # Nearly all of two bars of one panel in four.
    assert blue.mean() > 0.05
