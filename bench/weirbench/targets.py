"""What the pageserver's figures are to be, and whether they are."""

from __future__ import annotations

from typing import Any


def held(report: dict[str, Any]) -> dict[str, Any]:
    """What was aimed at, what was measured, and whether that is good enough; only of what was measured."""
    judged: dict[str, Any] = {}

    def judge(name: str, target: str, measured: Any, good: bool) -> None:
        judged[name] = {"target": target, "measured": measured, "held": bool(good)}

    if rates := report.get("ingest_mib_s_per_core"):
        judge("ingest_mib_s_per_core", ">= 250 each", rates, min(rates.values()) >= 250)
    if hot := report.get("getpage_hot_us"):
        judge("getpage_hot_us", "p50 <= 60, p99 <= 250", hot, hot["p50"] <= 60 and hot["p99"] <= 250)
    if ratios := report.get("read_p99_ratio_pushdown_vs_fpw_on"):
        worst = {name: [it["ratio"], it["interval"][1]] for name, it in ratios.items()}
        good = all(of <= 0.6 and high < 1 for of, high in worst.values())
        target = "<= 0.6, upper end of the interval < 1, every class"
        judge("read_p99_ratio_pushdown_vs_fpw_on", target, worst, good)
    if most := report.get("l0_max"):
        judge("l0_max", "< 30", most, most < 30)
    if modes := report.get("adaptive"):
        measured = {name: modes[name] for name in ("worst_ratio_to_best_fixed", "mean_ratio_to_best_fixed")}
        target = "p99 x bytes written <= 1.1 of the best fixed threshold on each workload, better than any over all"
        judge("adaptive_images", target, measured, modes["held"])
    if costs := report.get("encryption"):
        measured = {name: it["cost"]["median"] for name, it in costs.items()}
        judge("encryption", "<= 0.1 of ingest's CPU time, each", measured, max(measured.values()) <= 0.1)
    if speedup := report.get("cold_scan_speedup"):
        judge("cold_scan_speedup", ">= 5", speedup, speedup >= 5)
    if speedup := report.get("upload_pipeline_speedup"):
        judge("upload_pipeline_speedup", ">= 2, every size of layer", speedup, speedup >= 2)
    return judged
