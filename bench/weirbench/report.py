"""The demo's result: as tables for a person, as JSON for a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .figures import Window

Number = float | None


@dataclass(frozen=True)
class Line:
    """One compute, or all of them, before and after."""

    name: str
    compute_id: str | None
    wave: str
    before: Window
    after: Window
    fpw_change_lsn: str | None
    image_threshold: int
    verdict: str
    failed_transactions: int
    broken_connections: int


def number(value: Number, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(before: Number, after: Number) -> str:
    if before is None or after is None or before == 0:
        return "-"
    return f"x{after / before:.3f}" if after / before < 0.1 else f"x{after / before:.2f}"


def table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        first, *others = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        return "  ".join([row[0].ljust(len(first)), *others])

    return "\n".join([title, "  " + line(headers), *("  " + line(row) for row in rows)])


def _pairs(lines: Sequence[Line], figures: Sequence[tuple[Callable[[Window], Number], int]]) -> list[list[str]]:
    rows: list[list[str]] = []
    for entry in lines:
        row = [entry.name]
        for figure, digits in figures:
            before, after = figure(entry.before), figure(entry.after)
            row += [number(before, digits), number(after, digits), ratio(before, after)]
        rows.append(row)
    return rows


def _heads(*names: str) -> list[str]:
    heads: list[str] = []
    for name in names:
        heads += [name, "after", "ratio"]
    return heads


def tables(lines: Sequence[Line]) -> str:
    """Before and after of every figure, with the ratio. The unit is in the heading, the source below the table."""
    parts = [
        table(
            "WAL volume (agents, from the WAL itself; per transaction = committed transactions of pgbench)",
            ["compute", *_heads("kB/s before", "B/tx before", "of it images", "and the rest")],
            _pairs(
                lines,
                [
                    (lambda w: w.wal_bytes_per_second / 1000, 1),
                    (lambda w: w.wal_bytes_per_transaction, 0),
                    (lambda w: w.image_bytes_per_transaction, 0),
                    (lambda w: w.rest_bytes_per_transaction, 0),
                ],
            ),
        ),
        table(
            "Work done (pgbench's log at a fixed rate; new orders counted in the database)",
            ["compute", *_heads("tx/s before", "NOPM before", "tx p50 ms before", "tx p99 ms before")],
            _pairs(
                lines,
                [
                    (lambda w: w.transactions_per_second, 2),
                    (lambda w: w.nopm, 0),
                    (lambda w: w.latency_ms(0.5), 2),
                    (lambda w: w.latency_ms(0.99), 2),
                ],
            ),
        ),
        table(
            "Commit: WAL received from Postgres until fsynced by a majority (agents)",
            ["compute", *_heads("p50 ms before", "p99 ms before")],
            _pairs(
                lines,
                [
                    (lambda w: w.quantile("commit", 0.5, 1e3), 2),
                    (lambda w: w.quantile("commit", 0.99, 1e3), 2),
                ],
            ),
        ),
        table(
            "Storage reads: misses and audit reads of changed pages (agents)",
            ["compute", *_heads("p50 us before", "p99 us before", "chain p99 before")],
            _pairs(
                lines,
                [
                    (lambda w: w.quantile("read", 0.5, 1e6), 0),
                    (lambda w: w.quantile("read", 0.99, 1e6), 0),
                    (lambda w: w.quantile("chain", 0.99), 0),
                ],
            ),
        ),
        table(
            "Switch",
            ["compute", "wave", "FPW_CHANGE at", "verdict", "page images after", "checkpoints before", "after",
             "failed tx", "broken conn."],
            [
                [
                    entry.name, entry.wave, entry.fpw_change_lsn or "-", entry.verdict,
                    number(entry.after.page_images), str(entry.before.checkpoints), str(entry.after.checkpoints),
                    str(entry.failed_transactions), str(entry.broken_connections),
                ]
                for entry in lines
            ],
        ),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _pair(entry: Line, figure: Callable[[Window], Any]) -> dict[str, Any]:
    return {"before": figure(entry.before), "after": figure(entry.after)}


def _latency(name: str, scale: float) -> Callable[[Window], dict[str, Number]]:
    return lambda w: {"p50": w.quantile(name, 0.5, scale), "p99": w.quantile(name, 0.99, scale)}


def document(entry: Line) -> dict[str, Any]:
    """One line as JSON. Units are in the names; bytes and seconds where there is none."""
    return {
        "name": entry.name,
        "compute_id": entry.compute_id,
        "wave": entry.wave,
        "wal_bytes_per_transaction": _pair(entry, lambda w: w.wal_bytes_per_transaction),
        "wal_image_bytes_per_transaction": _pair(entry, lambda w: w.image_bytes_per_transaction),
        "wal_rest_bytes_per_transaction": _pair(entry, lambda w: w.rest_bytes_per_transaction),
        "wal_bytes_per_second": _pair(entry, lambda w: w.wal_bytes_per_second),
        "transactions_per_second": _pair(entry, lambda w: w.transactions_per_second),
        "nopm": _pair(entry, lambda w: w.nopm),
        "commit_ms": _pair(entry, _latency("commit", 1e3)),
        "transaction_ms": _pair(entry, lambda w: {"p50": w.latency_ms(0.5), "p99": w.latency_ms(0.99)}),
        "storage_read_us": _pair(entry, _latency("read", 1e6)),
        "image_share": _pair(entry, lambda w: w.image_share),
        "chain_length_p99": _pair(entry, lambda w: w.quantile("chain", 0.99)),
        "page_images": _pair(entry, lambda w: w.page_images),
        "wal_bytes_by_postgres": _pair(entry, lambda w: w.own_wal_bytes),
        "checkpoints": _pair(entry, lambda w: w.checkpoints),
        "window_seconds": _pair(entry, lambda w: w.seconds),
        "image_threshold": entry.image_threshold,
        "fpw_change_lsn": entry.fpw_change_lsn,
        "verdict": entry.verdict,
        "failed_transactions": entry.failed_transactions,
        "broken_connections": entry.broken_connections,
    }
