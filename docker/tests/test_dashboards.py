"""Promise: a panel asks for what there is, in PromQL that Prometheus takes, in the unit that its metric has; and says
what is bad and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from boards import names, promql
from boards.__main__ import FOLDER, files
from boards.all import DASHBOARDS
from boards.panel import COLUMNS, DATASOURCE, Dashboard, Panel, as_json
from promtool import promtool

DOCKER = Path(__file__).resolve().parents[1]
GRAFANA = DOCKER / "grafana"
# Grafana puts these into an expression before Prometheus sees it.
SAMPLES = {"$__rate_interval": "1m", "$__range": "1h", "$endpoint": "ep-quiet-river"}
UNITS = {"none", "s", "bytes", "Bps", "ops", "reqps", "cps", "percentunit"}
PANELS = [(board, panel) for board in DASHBOARDS for panel in board.panels]
SERIES = names.series()


def ident(value: object) -> str:
    return value.title if isinstance(value, Dashboard | Panel) else str(value)


def queries() -> Iterator[tuple[str, str]]:
    """What asks, and its PromQL as Prometheus gets it."""
    for board, panel in PANELS:
        for query in panel.queries:
            expr = query.expr
            for name, sample in SAMPLES.items():
                expr = expr.replace(name, sample)
            yield f"{board.title}, {panel.title}", expr
    for board in DASHBOARDS:
        for annotation in as_json(board)["annotations"]["list"]:
            yield f"{board.title}, annotations", annotation["expr"]


def unknown(expr: str) -> set[str]:
    return promql.names(expr) - SERIES


def test_the_dashboards_are_those_that_the_code_makes() -> None:
    wanted = files()
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in wanted}
    for path, text in wanted.items():
        assert path.read_text() == text, "run `python -m boards` in docker/grafana"


def test_every_metric_of_a_panel_exists() -> None:
    missing = {what: found for what, expr in queries() if (found := unknown(expr))}
    assert not missing
    assert unknown("sum(rate(weir_compute_commits_total[5m]))") == {"weir_compute_commits_total"}
    # A histogram is asked for by its buckets, its sum or its count.
    assert unknown("weir_compute_commit_quorum_seconds") == {"weir_compute_commit_quorum_seconds"}


def test_every_metric_of_an_alert_exists() -> None:
    groups = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text())["groups"]
    asked = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    assert not {name: found for name, expr in asked.items() if (found := unknown(expr))}


def test_the_metrics_of_the_code_are_found() -> None:
    """So that the checks above cannot pass on nothing, and fail on a metric that was renamed."""
    found = names.of_programs()
    assert found["weir_compute_commit_quorum_seconds"] == "histogram"
    assert found["weir_compute_page_read_seconds"] == "histogram"
    assert found["weir_compute_up"] == "gauge"
    assert found["weir_compute_wal_paced_seconds_total"] == "counter"
    assert found["weir_safekeeper_fsync_seconds"] == "histogram"
    assert found["weir_pageserver_request_seconds"] == "histogram"
    assert found["weir_pageserver_page_cache_hits_total"] == "counter"
    assert found["weir_token_authentication"] == "gauge"
    assert found["weir_api_request_seconds"] == "histogram"
    assert found["weir_operations_ended_total"] == "counter"
    # Each name that a source of Rust has for a metric was told apart as one.
    written = {
        match
        for path in sorted((names.REPO / "storage/crates").glob("*/src/**/*.rs"))
        for match in re.findall(
            r'"(weir_(?:compute|safekeeper|pageserver|proxy|token|worker|panics)_[a-z0-9_]+)"', path.read_text()
        )
    }
    assert not written - set(found)
    counters = {name for name, kind in found.items() if kind == "counter"}
    assert all(name.endswith("_total") for name in counters)


def test_names_are_read_out_of_promql() -> None:
    assert promql.names("sum by (le, job) (rate(a_bucket{x=\"b\", y=~'c|d'}[5m]))") == {"a_bucket"}
    assert promql.names('a - on (t) group_right (p) b{x!="y"} > bool 0 or vector(0)') == {"a", "b"}
    assert promql.names("x:y:rate / (time() - z_seconds) unless 1e9 < w offset 5m") == {"x:y:rate", "z_seconds", "w"}


def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{place}", "expr": expr} for place, (_, expr) in enumerate(queries())]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
    rules[0]["expr"] = "sum by (le (up)"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert promtool("check", "rules", path).returncode != 0


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=ident)
def test_a_panels_unit_is_its_metrics(board: Dashboard, panel: Panel) -> None:
    del board
    assert panel.unit in UNITS
    for query in panel.queries:
        assert panel.unit in promql.units(query.expr), query.expr


def test_units_follow_from_names() -> None:
    assert promql.units("weir_x_bytes") == {"bytes"}
    assert promql.units("sum(rate(weir_x_bytes_total[5m]))") == {"Bps"}
    assert promql.units("sum(rate(weir_x_seconds_total[5m]))") == {"percentunit"}
    assert promql.units("histogram_quantile(0.9, sum by (le) (rate(weir_x_seconds_bucket[5m])))") == {"s"}
    assert promql.units("sum(rate(weir_x_total[5m]))") == {"ops", "reqps", "cps"}
    assert promql.units("sum(rate(weir_x_total[5m])) / sum(rate(weir_y_total[5m]))") == {"percentunit"}
    # Bytes beside seconds fit no unit that a panel can have.
    assert "bytes" not in promql.units("weir_x_seconds")


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=ident)
def test_a_panel_says_what_is_bad_and_what_to_do(board: Dashboard, panel: Panel) -> None:
    del board
    for text in (panel.bad, panel.do):
        assert text.endswith((".", "?")), text
        assert len(text) > 6, text
    assert panel.description == f"Bad: {panel.bad}\n\nDo: {panel.do}"
    assert len({query.expr for query in panel.queries}) == len(panel.queries)
    if len(panel.queries) > 1:
        assert all(query.legend for query in panel.queries)


@pytest.mark.parametrize("board", DASHBOARDS, ids=ident)
def test_latency_traffic_errors_and_saturation_come_in_that_order(board: Dashboard) -> None:
    rows = [row.title for row in board.rows]
    signals = ["Now", "Latency", "Traffic", "Errors", "Saturation"]
    assert [next(signal for signal in signals if row.startswith(signal)) for row in rows] == signals[: len(rows)]


def shape_faults(document: dict[str, Any]) -> list[str]:
    """What Grafana would not show as it is meant, by its dashboard JSON model."""
    faults: list[str] = []
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", str(document.get("uid"))):
        faults.append("its uid is none")
    faults += [f"{key} is missing" for key in ("title", "schemaVersion", "panels", "time") if not document.get(key)]
    panels: list[dict[str, Any]] = document.get("panels") or []
    if len({panel["id"] for panel in panels}) != len(panels):
        faults.append("two panels have one id")
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if place["x"] + place["w"] > COLUMNS or cells & taken:
            faults.append(f"{panel['title']} lies on another one, or beside the page")
        taken |= cells
        if panel["type"] == "row":
            continue
        if panel["type"] not in {"timeseries", "stat", "table"}:
            faults.append(f"{panel['title']} is of no type that Grafana brings")
        targets = panel["targets"]
        if not targets or len({target["refId"] for target in targets}) != len(targets):
            faults.append(f"{panel['title']} has no targets, or two of one refId")
        if any(target["datasource"] != DATASOURCE for target in targets):
            faults.append(f"{panel['title']} asks another data source")
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        values = [step["value"] for step in steps]
        if values[0] is not None or values[1:] != sorted(values[1:]):
            faults.append(f"{panel['title']} has thresholds out of order")
    return faults


@pytest.mark.parametrize("board", DASHBOARDS, ids=ident)
def test_a_dashboard_has_the_shape_that_grafana_reads(board: Dashboard) -> None:
    document = json.loads((FOLDER / f"{board.uid.removeprefix('weir-')}.json").read_text())
    assert shape_faults(document) == []
    document["panels"][2]["gridPos"] = document["panels"][1]["gridPos"]
    document["panels"][1]["targets"][0]["datasource"] = {"type": "prometheus", "uid": "another"}
    assert len(shape_faults(document)) == 2


def test_uids_and_titles_are_each_dashboards_own() -> None:
    assert len({board.uid for board in DASHBOARDS}) == len({board.title for board in DASHBOARDS}) == len(DASHBOARDS)


def test_what_grafana_is_provisioned_with_is_what_the_dashboards_ask() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/weir.yaml").read_text())["datasources"]
    assert [(source["type"], source["uid"]) for source in sources if source.get("isDefault")] == [
        (DATASOURCE["type"], DATASOURCE["uid"])
    ]
    assert sources[0]["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/weir.yaml").read_text())["providers"]
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]["grafana"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in composed["volumes"]


def test_a_variable_is_a_label_of_a_metric_that_exists() -> None:
    for board in DASHBOARDS:
        for variable in board.variables:
            assert variable.metric in SERIES
            assert any(f"${variable.name}" in query.expr for panel in board.panels for query in panel.queries)
