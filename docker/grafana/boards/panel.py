"""What a dashboard is made of, and its JSON (schema version 39 of Grafana, which 10 and later read)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA_VERSION = 39
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "weir-prometheus"}
# Rates of what is scraped every second: Grafana chooses a window that has four scrapes.
RATE = "$__rate_interval"
Kind = Literal["timeseries", "stat", "table"]


@dataclass(frozen=True)
class Query:
    """PromQL, and what a line of it is called: `{{label}}` is the label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """`bad` and `do` are what somebody who was woken reads first. `warn` and `alarm`: values at which the colour
    changes; the alarm may lie below the warning, where less is worse. `unit`: Grafana's name of it."""

    title: str
    bad: str
    do: str
    unit: str
    queries: Sequence[Query]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 7
    warn: float | None = None
    alarm: float | None = None
    stacked: bool = False

    @property
    def description(self) -> str:
        return f"Bad: {self.bad}\n\nDo: {self.do}"


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the dashboard: the values of a label of a metric."""

    name: str
    metric: str
    label: str


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    about: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]


def quantile(share: float, metric: str, by: str = "", matchers: str = "", window: str = RATE) -> str:
    """PromQL for a quantile of a histogram, by these labels beside `le`."""
    labels = ", ".join(part for part in (by, "le") if part)
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{matchers}}}[{window}])))"


def rate(metric: str, by: str = "", matchers: str = "", window: str = RATE) -> str:
    """PromQL for the sum of a counter's rates, by these labels."""
    over = f" by ({by})" if by else ""
    return f"sum{over} (rate({metric}{{{matchers}}}[{window}]))"


def as_json(board: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in board.rows:
        panels.append(_row(len(panels) + 1, row.title, y))
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            panels.append(_panel(len(panels) + 1, panel, x, y))
            x += panel.width
            height = max(height, panel.height)
        y += height
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.about,
        "tags": ["weir"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "annotations": {"list": [_alerts()]},
        "links": [
            {
                "type": "dashboards",
                "title": "Weir",
                "tags": ["weir"],
                "asDropdown": False,
                "includeVars": False,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_variable(variable) for variable in board.variables]},
        "panels": panels,
    }


def _alerts() -> dict[str, Any]:
    """Alerts that call somebody, as marks in every chart."""
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'count by (alertname) (ALERTS{alertstate="firing", severity="page"})',
        "titleFormat": "{{alertname}}",
        "step": "30s",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.metric}, {variable.label})"
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.name,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": "A"},
        "refresh": 2,
        "sort": 1,
        "multi": False,
        "includeAll": False,
    }


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    instant = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "range": not instant,
            "instant": instant,
            **({"format": "table"} if instant else {}),
        }
        for place, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warn is not None and panel.alarm is not None and panel.alarm < panel.warn:
        # Less is worse: the colours begin with the alarm.
        steps = [
            {"color": "red", "value": None},
            {"color": "orange", "value": panel.alarm},
            {"color": "green", "value": panel.warn},
        ]
    else:
        steps += [{"color": "orange", "value": panel.warn}] if panel.warn is not None else []
        steps += [{"color": "red", "value": panel.alarm}] if panel.alarm is not None else []
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        marked = panel.warn is not None or panel.alarm is not None
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if marked else "off"},
        }
    return defaults


def _options(kind: Kind) -> dict[str, Any]:
    if kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "background",
            "graphMode": "area",
            "textMode": "auto",
        }
    if kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    return {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
