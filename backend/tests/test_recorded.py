"""The sums that Prometheus records for operators are those it would make of the computes themselves."""

import json
import subprocess
from pathlib import Path

from weir.computes import metrics, recorded

SECONDS = 120


def test_recorded_sums_are_those_of_the_computes(tmp_path: Path) -> None:
    """By `promtool`: two computes in one region and one in another, each figure both ways."""
    rules = tmp_path / "rules.yml"
    rules.write_text(recorded.rules(1))
    series: list[dict[str, str]] = []
    for number, region in enumerate(("here", "here", "there"), 1):
        labels = f'compute_id="ep-{number}",region_id="{region}"'
        counters = [
            ('weir_compute_wal_bytes_total{%s,part="image",rmgr="heap"}', 10),
            ('weir_compute_wal_bytes_total{%s,part="rest",rmgr="heap"}', 3),
            ('weir_compute_transactions_total{%s,result="commit"}', 2),
            ('weir_compute_transactions_total{%s,result="abort"}', 7),
        ]
        for name in ("commit_quorum_seconds", "page_read_seconds", "page_chain_length"):
            counters += [
                (f'weir_compute_{name}_bucket{{%s,le="{bound}"}}', share)
                for bound, share in (("1", 1), ("2", number), ("+Inf", 4))
            ]
        series += [{"series": name % labels, "values": f"0+{number * step}x{SECONDS}"} for name, step in counters]
    window = f"{metrics.rate_window_seconds(1)}s"
    checks = [
        {
            "expr": f"({figure.query('', window)}) == ({same.query('', window)}) or vector(-1)",
            "eval_time": f"{SECONDS}s",
        }
        for figure, same in zip(recorded.CHARTED, metrics.CHARTED, strict=True)
    ]
    here = recorded.of_region("here")
    exact = [
        {"expr": recorded.WAL[0].query(here, window), "eval_time": f"{SECONDS}s",
         "exp_samples": [{"labels": "{}", "value": 30}]},
        *({"expr": f"({check['expr']}) >= bool 0", "eval_time": check["eval_time"],
           "exp_samples": [{"labels": "{}", "value": 1}]} for check in checks),
    ]  # fmt: skip
    wanted = {
        "rule_files": [str(rules)],
        "evaluation_interval": "5s",
        "tests": [{"interval": "1s", "input_series": series, "promql_expr_test": exact}],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(wanted))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [figure.name for figure in recorded.CHARTED] == [figure.name for figure in metrics.CHARTED]
