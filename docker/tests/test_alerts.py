"""Promise: each alert fires when what it is named after happens, once it has lasted, and not when all is well."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from promtool import promtool, unit_tests

DOCKER = Path(__file__).resolve().parents[1]
ALERTS = DOCKER / "prometheus" / "alerts.yml"
RULES = DOCKER / "prometheus" / "rules.yml"
# Every ten seconds, for so many of them.
STEP, COUNT = "10s", 720
API, STORE = 'up{job="api",instance="a"}', 'up{job="pageserver",instance="p"}'
KEEPERS = [f'up{{job="safekeeper",instance="{n}",safekeeper_id="{n}"}}' for n in (1, 2, 3)]
WELL = dict.fromkeys((API, STORE, *KEEPERS), "1")
ONE = '{compute_id="ep-a",endpoint_id="ep-a",tenant_id="t",timeline_id="l",region_id="local"}'


def with_labels(metric: str, more: str = "") -> str:
    return metric + (ONE[:-1] + f",{more}}}" if more else ONE)


def grows(by: float) -> str:
    """A counter that gains so much every ten seconds."""
    return f"0+{by}x{COUNT}"


def stays(value: float) -> str:
    return f"{value}+0x{COUNT}"


def once(after_minutes: int, value: int = 1, before: int = 0) -> str:
    """A counter with one jump."""
    steps = after_minutes * 6
    return f"{before}+0x{steps} {before + value}+0x{COUNT - steps}"


@dataclass(frozen=True)
class Case:
    """Series by name and values. `fires`: minutes at which the alert does; `quiet`: at which it does not yet; None:
    it fires at once."""

    bad: dict[str, str]
    good: dict[str, str]
    fires: int
    quiet: int | None = None
    # Less serious alerts that are right where this one is not.
    rather: set[str] = field(default_factory=set[str])


def slow(share_in_time: float, metric: str, bounds: tuple[str, str], labels: str = "") -> dict[str, str]:
    """A histogram of which so large a share is within the first bound."""

    def bucket(bound: str) -> str:
        le = f'le="{bound}"'
        return with_labels(f"{metric}_bucket", le) if not labels else f"{metric}_bucket{{{labels},{le}}}"

    return {
        bucket(bounds[0]): grows(100 * share_in_time),
        bucket(bounds[1]): grows(100),
        bucket("+Inf"): grows(100),
    }


COMMIT = ("weir_compute_commit_quorum_seconds", ("0.1", "2"))
FSYNC = ("weir_safekeeper_fsync_seconds", ("0.01", "2"), 'job="safekeeper",safekeeper_id="1"')
SICK = 'weir_safekeeper_sick_members{{safekeeper_id="{}",kind="{}"}}'
KEPT, ROOM = (f'weir_safekeeper_wal_{word}_bytes{{tenant_id="t",timeline_id="l"}}' for word in ("kept", "room"))
FREE, RESERVE = (
    f'weir_safekeeper_disk_{word}_bytes{{job="safekeeper",safekeeper_id="1"}}' for word in ("free", "reserve")
)
REQUESTS = 'weir_api_requests_total{{job="api",method="GET",route="/",status="{}"}}'
ENDED = 'weir_proxy_connections_ended_total{{job="proxy",why="{}"}}'
FAILED = 'weir_operations_ended_total{job="worker",kind="start_compute",status="failed"}'
EXPIRES = 'weir_proxy_certificate_not_after_timestamp_seconds{job="proxy"}'
DAY = 86_400

CASES = {
    "WeirCommitsSlow": Case(slow(0.9, *COMMIT), slow(1, *COMMIT), fires=14, quiet=9),
    "WeirCommitsStandStill": Case(
        {with_labels("weir_compute_commits_waiting"): "3", with_labels(f"{COMMIT[0]}_count"): stays(7)},
        {with_labels("weir_compute_commits_waiting"): "3", with_labels(f"{COMMIT[0]}_count"): grows(7)},
        fires=4,
        quiet=1,
    ),
    "WeirComputeDown": Case(
        {with_labels("up", 'job="compute"'): "0"},
        {with_labels("up", 'job="compute"'): "1", with_labels("weir_compute_up"): "1"},
        fires=4,
        quiet=2,
    ),
    "WeirComputeRestarts": Case(
        {with_labels("weir_compute_restarts_total"): grows(0.1)},
        {with_labels("weir_compute_restarts_total"): once(3)},
        fires=12,
        quiet=2,
    ),
    "WeirWritesRefused": Case(
        {with_labels("weir_compute_writes_refused"): "1"},
        {with_labels("weir_compute_writes_refused"): "0"},
        fires=2,
        quiet=0,
    ),
    "WeirApiFails": Case(
        {REQUESTS.format(500): grows(1), REQUESTS.format(200): grows(10)},
        # One failure is none, however few requests there are.
        {REQUESTS.format(500): once(4), REQUESTS.format(200): grows(1), REQUESTS.format(404): grows(10)},
        fires=8,
        quiet=3,
    ),
    "WeirProxyRefuses": Case(
        {ENDED.format("refused"): grows(5), ENDED.format("client"): grows(5)},
        {ENDED.format("refused"): grows(0.1), ENDED.format("client"): grows(5)},
        fires=8,
        quiet=3,
    ),
    "WeirWakesFail": Case(
        {'weir_proxy_wakes_total{job="proxy",result="failed"}': once(3, 4)},
        {'weir_proxy_wakes_total{job="proxy",result="ok"}': grows(4)},
        fires=4,
        quiet=2,
    ),
    "WeirPartDown": Case(
        {'up{job="proxy",instance="x"}': "0"}, {'up{job="proxy",instance="x"}': "1"}, fires=2, quiet=0
    ),
    "WeirPartsUnknown": Case({API: "_"}, {}, fires=6, quiet=4),
    "WeirSafekeeperDown": Case({KEEPERS[1]: "0"}, {}, fires=3, quiet=1),
    "WeirSafekeepersDown": Case(
        {KEEPERS[0]: "0", KEEPERS[1]: "0"}, {KEEPERS[1]: "0"}, fires=1, quiet=0, rather={"WeirSafekeeperDown"}
    ),
    "WeirSafekeeperSick": Case({SICK.format(1, "lost"): "2"}, {SICK.format(1, "lost"): "0"}, fires=11, quiet=9),
    "WeirSafekeepersSick": Case(
        {SICK.format(1, "lost"): "1", SICK.format(2, "damaged"): "1"},
        {SICK.format(1, "lost"): "1", SICK.format(1, "damaged"): "1", SICK.format(2, "lost"): "0"},
        fires=3,
        quiet=1,
        rather={"WeirSafekeeperSick"},
    ),
    "WeirSafekeeperDamaged": Case(
        {'weir_safekeeper_damaged_bytes{safekeeper_id="1",timeline_id="l"}': "4096"},
        {'weir_safekeeper_damaged_bytes{safekeeper_id="1",timeline_id="l"}': "0"},
        fires=31,
        quiet=29,
    ),
    "WeirFsyncSlow": Case(slow(0.9, *FSYNC), slow(1, *FSYNC), fires=17, quiet=14),
    "WeirPartRestarts": Case(
        {STORE: f"1+0x11 0+0x1 1+0x11 0+0x1 1+0x{COUNT}"},
        {STORE: f"1+0x11 0+0x1 1+0x{COUNT}"},
        fires=6,
        quiet=3,
    ),
    "WeirDataMismatch": Case(
        {with_labels("weir_compute_audit_reads_total", 'result="mismatch"'): once(2)},
        {
            with_labels("weir_compute_audit_reads_total", 'result="mismatch"'): stays(0),
            with_labels("weir_compute_audit_reads_total", 'result="equal"'): grows(9),
        },
        fires=3,
        quiet=1,
    ),
    "WeirTimelineStopped": Case(
        {with_labels("weir_pageserver_timeline_stopped"): "1"},
        {with_labels("weir_pageserver_timeline_stopped"): "0"},
        fires=1,
    ),
    "WeirUploadsFail": Case(
        {with_labels("weir_pageserver_uploads_failing_seconds"): grows(10)},
        {with_labels("weir_pageserver_uploads_failing_seconds"): "60"},
        fires=6,
        quiet=4,
    ),
    "WeirIngestLags": Case(
        {with_labels("weir_compute_ingest_lag_bytes"): "3e9"},
        {with_labels("weir_compute_ingest_lag_bytes"): "5e8"},
        fires=11,
        quiet=9,
    ),
    "WeirWalRoomShort": Case({ROOM: "1e9"}, {ROOM: "1.6e10"}, fires=3, quiet=1),
    "WeirWalBacklog": Case({KEPT: "9e9"}, {KEPT: "2e9"}, fires=16, quiet=14),
    "WeirOffloadFails": Case(
        {'weir_safekeeper_offloads_total{safekeeper_id="1",outcome="failed"}': grows(1)},
        {'weir_safekeeper_offloads_total{safekeeper_id="1",outcome="uploaded"}': grows(1)},
        fires=35,
        quiet=29,
    ),
    # 30 GB that go within two hours.
    "WeirDiskFills": Case(
        {FREE: f"30000000000-{30_000_000_000 // COUNT}x{COUNT}", RESERVE: "0"},
        # A disk that fills as fast and has a month of room, and one that stays as it is.
        {FREE: f"300000000000000-{30_000_000_000 // COUNT}x{COUNT}", RESERVE: "0"},
        fires=18,
        quiet=14,
    ),
    "WeirDiskShort": Case({FREE: "3e9", RESERVE: "2e9"}, {FREE: "4.1e9", RESERVE: "2e9"}, fires=3, quiet=1),
    "WeirOperationsFail": Case({FAILED: once(3, 3)}, {FAILED: once(3, 2)}, fires=4, quiet=2),
    "WeirRolloutWaits": Case(
        {'weir_rollout_alerts{kind="held"}': "1"}, {'weir_rollout_alerts{kind="held"}': "0"}, fires=6, quiet=4
    ),
    "WeirPortOpen": Case(
        {'weir_token_authentication{job="safekeeper",instance="1"}': "0"},
        {'weir_token_authentication{job="safekeeper",instance="1"}': "1"},
        fires=2,
        quiet=0,
    ),
    "WeirTokensRefused": Case(
        {'weir_token_refusals_total{job="safekeeper",instance="1",reason="expired"}': grows(1)},
        {'weir_token_refusals_total{job="safekeeper",instance="1",reason="expired"}': once(3, 5)},
        fires=16,
        quiet=9,
    ),
    "WeirCertificateExpires": Case({EXPIRES: stays(10 * DAY)}, {EXPIRES: stays(30 * DAY)}, fires=11, quiet=9),
    "WeirCertificateExpiresSoon": Case({EXPIRES: stays(DAY)}, {EXPIRES: stays(30 * DAY)}, fires=1),
    "WeirClockJumps": Case(
        {'weir_pageserver_clock_jumps_total{job="pageserver"}': once(2)},
        {'weir_pageserver_clock_jumps_total{job="pageserver"}': stays(3)},
        fires=3,
        quiet=1,
    ),
}


def _group(series: dict[str, str], checks: list[tuple[int, set[str]]]) -> dict[str, Any]:
    inputs = {**WELL, **series}
    values = {name: text if "x" in text else stays(float(text)) for name, text in inputs.items() if text != "_"}
    return {
        "interval": STEP,
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0',
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
            }
            for minutes, firing in checks
        ],
    }


def cases_of(name: str, case: Case) -> list[dict[str, Any]]:
    checks = [] if case.quiet is None else [(case.quiet, set[str]())]
    return [
        _group(case.bad, [*checks, (case.fires, {name})]),
        # What is rather said is said after ten minutes at most.
        _group(case.good, [(case.fires, set()), *([(12, case.rather)] if case.rather else [])]),
    ]


def all_alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_each_alert_fires_when_it_should_and_no_other_one(tmp_path: Path) -> None:
    tests = [test for name, case in CASES.items() for test in cases_of(name, case)]
    result = unit_tests(tmp_path / "tests.yml", [RULES, ALERTS], tests)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


def test_each_alert_has_a_case() -> None:
    assert set(CASES) == set(all_alerts())


@pytest.mark.parametrize("what", ["a threshold", "a duration"])
def test_an_alert_that_was_weakened_fails_its_case(what: str, tmp_path: Path) -> None:
    """So that the test above cannot pass on nothing."""
    text = ALERTS.read_text()
    changed = {
        "a threshold": text.replace("weir_compute_ingest_lag_bytes > 1e9", "weir_compute_ingest_lag_bytes > 1e10"),
        "a duration": text.replace("> 1e9\n        for: 10m", "> 1e9\n        for: 1m"),
    }[what]
    assert changed != text
    weakened = tmp_path / "alerts.yml"
    weakened.write_text(changed)
    tests = cases_of("WeirIngestLags", CASES["WeirIngestLags"])
    assert unit_tests(tmp_path / "tests.yml", [RULES, weakened], tests).returncode != 0
    assert unit_tests(tmp_path / "tests.yml", [RULES, ALERTS], tests).returncode == 0


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    # The token's file is there in the container alone.
    checked = promtool("check", "config", "--syntax-only", DOCKER / "prometheus" / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES, ALERTS)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    named = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())["rule_files"]
    assert sorted(named) == ["alerts.yml", "rules.yml"]


def test_each_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for name, rule in all_alerts().items():
        assert set(rule["labels"]) == {"severity"}
        assert rule["labels"]["severity"] in {"page", "ticket"}, name
        assert set(rule["annotations"]) == {"summary", "description"}, name
        assert len(rule["annotations"]["summary"]) <= 110, name
        assert rule["annotations"]["description"].rstrip().endswith((".", "?")), name
