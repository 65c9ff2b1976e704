"""A rollout's report holds what was measured and decided, and shows names, reasons and details as text only."""

import json
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from weir.computes import metrics
from weir.rollouts.evidence.figures import figures, together
from weir.rollouts.evidence.schemas import CellEvidence, EvidenceSum, MemberEvidence, WaveEvidence
from weir.rollouts.evidence.summary import saved
from weir.rollouts.models import MemberMode, MemberState, RolloutStatus, WaveState
from weir.rollouts.plan.schemas import PlanSummary
from weir.rollouts.report import charts as report_charts
from weir.rollouts.report import content as report
from weir.rollouts.report import format as report_format
from weir.rollouts.report import words as report_words
from weir.rollouts.report.format import MINUS, NONE

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVIL = "</svg><script>alert('x')</script><img src=x onerror=\"y\">&amp;"


def window(start: datetime, image: float, rest: float, transactions: float, slow: bool = False) -> dict[str, Any]:
    seconds = 60.0
    return {
        "from": start.isoformat(),
        "to": (start + timedelta(seconds=seconds)).isoformat(),
        "seconds": seconds,
        "wal": {"Heap": {"image": image, "rest": rest}, "Transaction": {"image": 0.0, "rest": 1000.0}},
        "transactions": {"commit": transactions, "abort": 0.0},
        "checkpoints": 2,
        "histograms": {
            "commit": [[0.001, 0.002, 90.0], [0.05 if slow else 0.002, 0.1 if slow else 0.003, 10.0]],
            "storage_read": [[0.0001, 0.0002, 50.0]],
            "chain": None,
        },
        "storage": {"images": 120, "image_bytes": 983040, "images_pending_max": 3, "image_lag_bytes_max": 70_000},
    }


BEFORE = window(START, 6e7, 3e6, 6000)
AFTER = window(START + timedelta(seconds=70), 0.0, 3e6, 6000)


def a_sum(computes: int = 1) -> dict[str, Any]:
    before, after = together([BEFORE] * computes), together([AFTER] * computes)
    return {
        "computes": computes,
        "before": before,
        "after": after,
        "wal_saved_bytes_per_second": saved(before, after),
    }


def member(number: int, **more: Any) -> MemberEvidence:
    values: dict[str, Any] = {
        "compute_id": f"ep-{number}",
        "project_id": f"p-{number}",
        "project_name": f"project {number}",
        "region_id": "local",
        "cell": "local-1",
        "wave": 0,
        "mode": MemberMode.RUNNING,
        "state": MemberState.PASSED,
        "verdict": "pass",
        "reason": "every bound holds",
        "switched_at": START + timedelta(seconds=62),
        "fpw_change_lsn": "0/16B3748",
        "rolled_back_at": None,
        "measured_at": START,
        "before": figures(BEFORE),
        "after": figures(AFTER),
        "wal_saved_bytes_per_second": 1e6,
    }
    return MemberEvidence(**(values | more))


def content(members: list[MemberEvidence], **more: Any) -> report.Report:
    times = [START.timestamp() + at for at in range(0, 130, 2)]
    course: dict[str, Any] = {
        "compute_id": "ep-0",
        "project_name": members[0].project_name,
        "times": times,
        "window_seconds": 15,
        **{figure.name: [0.002] * len(times) for figure in metrics.CHARTED},
        "wal_image_bytes_per_second": [1e6 if at < times[31] else 0.0 for at in times],
        "wal_rest_bytes_per_second": [None if index == 5 else 5e4 for index in range(len(times))],
    }
    values: dict[str, Any] = {
        "rollout_id": "rollout-1",
        "name": "all of them",
        "feature": "image_pushdown",
        "feature_in_words": "Image pushdown",
        "status": RolloutStatus.COMPLETED,
        "status_reason": None,
        "created_by": "ops",
        "created_at": START,
        "started_at": START,
        "finished_at": START,
        "generated_at": START,
        "selector": {},
        "strategy": {"waves": [{"count": 1}]},
        "plan": PlanSummary(
            waves=[], computes_total=1, excluded_total=1, excluded_by_code=[
                {"code": "already_on", "computes": 1, "example": "full_page_writes is off already"}  # type: ignore[list-item]
            ], expected_wal_saved_bytes_per_second=None, created_at=START,
        ),
        "waves": [
            report.WaveReport(
                index=0, name="canary", state=WaveState.PASSED, reason=None, soak_seconds=0, started_at=START,
                finished_at=START, members_total=len(members), by_state={"passed": len(members)},
            )
        ],
        "members_total": len(members),
        "members_measured": 1,
        "by_state": {"passed": len(members)},
        "fleet": EvidenceSum(**a_sum()),
        "by_wave": [WaveEvidence(index=0, name="canary", **a_sum())],
        "by_cell": [CellEvidence(region_id="local", cell="local-1", **a_sum())],
        "members": members,
        "exclusions": [
            report.Exclusion(
                compute_id="ep-9", project_id="p-9", project_name="nine", region_id="local", cell="local-1",
                code="already_on", reason="full_page_writes is off already",
            )
        ],
        "decisions": [report.Decision(at=START, actor="ops", action="rollout.approve", detail={"wave": 0})],
        "method": report.METHOD,
        "courses": [report.told_course(members[0], course)],
    }  # fmt: skip
    return report.Report(**(values | more))


class Parsed(HTMLParser):
    """Tags that are open at the end, tags seen, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_says_what_was_measured_and_who_decided():
    parsed = Parsed(report.render(content([member(0)])))
    assert parsed.open == []
    for said in (
        "10.5 kB",
        "500 B",
        f"{MINUS}95.2 %",
        "0/16B3748",
        "rollout.approve",
        "local / local-1",
        "Transaction",
    ):
        assert said in parsed.text, said
    assert "1 \N{MULTIPLICATION SIGN} already on" in parsed.text


def test_what_people_and_programs_named_is_shown_and_never_obeyed():
    evil = content(
        [member(0, project_name=EVIL, reason=EVIL, cell=EVIL)],
        name=EVIL,
        status_reason=EVIL,
        created_by=EVIL,
        selector={"tags": {"a": EVIL}},
        strategy={"waves": [{"name": EVIL, "count": 1}]},
        by_wave=[WaveEvidence(index=0, name=EVIL, **a_sum()), WaveEvidence(index=1, name=EVIL, **a_sum())],
        by_cell=[CellEvidence(region_id=EVIL, cell=EVIL, **a_sum())],
        decisions=[report.Decision(at=START, actor=EVIL, action=EVIL, detail={EVIL: EVIL})],
        exclusions=[
            report.Exclusion(
                compute_id="ep-9",
                project_id="p-9",
                project_name=EVIL,
                region_id=EVIL,
                cell=EVIL,
                code="x",
                reason=EVIL,
            )
        ],
    )
    html = report.render(evil)
    parsed = Parsed(html)
    assert parsed.open == []
    assert not {"script", "img", "iframe", "object", "link", "form"} & {tag for tag, _ in parsed.seen}
    assert not [name for _, attrs in parsed.seen for name in attrs if name.startswith("on")]
    assert parsed.text.count(EVIL) >= 10


def test_the_report_needs_nothing_from_elsewhere():
    html = report.render(content([member(0)]))
    without_namespace = html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?://|url\(|@import|src=|href=", without_namespace)


def test_a_rollout_that_measured_nobody_has_a_report_that_says_so():
    empty = EvidenceSum(computes=0, before=together([]), after=together([]), wal_saved_bytes_per_second=None)
    unmeasured = member(0, before=None, after=None, verdict=None, switched_at=None, fpw_change_lsn=None)
    html = report.render(
        content(
            [unmeasured],
            status=RolloutStatus.RUNNING,
            members_measured=0,
            fleet=empty,
            by_wave=[],
            by_cell=[],
            courses=[],
        )
    )
    assert "measured yet, so there are no figures" in Parsed(html).text


def test_a_gap_in_a_series_stays_a_gap():
    drawn = report_charts.course(
        report_charts.Course(
            name="ep", times=[0, 1, 2, 3, 4], image=[1, 1, None, 1, 1], rest=[1, 1, 1, 1, 1],
            commit_p99=[0.1, None, None, 0.1, 0.2], baseline=(0, 1), after=(3, 4), switched=2,
        )
    )  # fmt: skip
    assert drawn.count("<polygon") == 3, "the total in two pieces, the rest in one"
    assert drawn.count("<polyline") == 1, "a point alone is no line"


def test_what_controls_foretold_is_drawn_beside_what_was_measured():
    found = content([member(0)])
    (course,) = found.courses
    names = [name for name, values in course.items() if isinstance(values, list) and name != "times"]
    controls = {"computes": 3} | {name: [value and value * 7 for value in course[name]] for name in names}
    found.courses = [report.told_course(found.members[0], course | {"controls": controls})]
    told = found.model_dump_json()
    assert "controls" not in json.loads(told)["courses"][0], "figures of computes that may be another account's"
    parsed = Parsed(report.render(found))
    lines = [attributes.get("class") for tag, attributes in parsed.seen if tag == "polyline"]
    assert (lines.count("measured"), lines.count("expected")) == (1, 3), "the gap in WAL is one here too"


def test_what_was_asked_for_is_said_in_words():
    waves = [{"count": 1, "name": "canary"}, {"percent": 100}]
    weekly = {"weekdays": [6, 7], "start_time": "00:00", "end_time": "24:00", "reason": None}
    once = {"from": "2026-12-20T00:00:00Z", "to": "2027-01-04T00:00:00Z", "reason": "holidays"}
    said = dict(report_words.strategy({"waves": waves, "plan_approval_required": True, "freeze_windows": [once]}))
    assert said["Waves"] == "canary (1 compute) and 60 s of soak, then 100 %"
    assert said["Judged by"].endswith("a pass rules out that a p99 got worse by 25 %")
    assert said["Approval"] == "asked for the plan"
    assert said["Freeze"].endswith(": holidays")
    unjudged = {"bake_seconds": 0, "freeze_windows": [weekly], "judge_by": "bounds", "max_chain_length": 30}
    said = dict(report_words.strategy(unjudged))
    assert said["Judged by"].startswith("nobody")
    assert said["Freeze"] == "Sat, Sun from 00:00 to 24:00 UTC"
    assert "below 30 deltas" in said["Hard bounds"]
    assert report_words.selector({}) == [("Computes", "every one")]
    chosen = {"tags": {"env": "prod"}, "pg_versions": [15, 17], "size_bytes": {"min": 1024}}
    assert dict(report_words.selector(chosen)) == {
        "Tags": "env=prod",
        "Postgres versions": "15, 17",
        "Size in storage": "from 1,024 bytes",
    }


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (report_format.size(0), "0 B"),
        (report_format.size(999.4), "999 B"),
        (report_format.size(10_516.7), "10.5 kB"),
        (report_format.rate(1_234_567), "1.23 MB/s"),
        (report_format.duration(0.000_412), "412 µs"),
        (report_format.duration(0.0021), "2.10 ms"),
        (report_format.duration(61), "61.0 s"),
        (report_format.change(100, 4.9), f"{MINUS}95.1 %"),
        (report_format.change(100, 100.01), "0.0 %"),
        (report_format.change(0, 5), NONE),
        (report_format.number(2.0), "2"),
        (report_format.number(None), NONE),
    ],
)
def test_figures_are_read_with_three_digits_and_a_unit(said: str, expected: str):
    assert said == expected
