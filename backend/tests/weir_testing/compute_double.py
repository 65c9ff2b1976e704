#!/usr/bin/env python3
"""A double of `weir-compute`: its command line, its HTTP API and its way to die, without Postgres.

Behaves by the setting `test.mode` of its spec: `fail` exits at once, `stuck` stays in `starting`; with `-on-15.20` at
the end, `fail` and `slow` do so on that minor only. Its counters
run with the clock: images are written while full_page_writes is on, and the rest always.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

IMAGE_BYTES_PER_SECOND = 900_000
REST_BYTES_PER_SECOND = 100_000
TRANSACTIONS_PER_SECOND = 100


class Compute:
    def __init__(self, spec_path: Path) -> None:
        self.spec: dict[str, Any] = json.loads(spec_path.read_text())
        self.fpw: bool = self.spec["full_page_writes"]
        self.fpw_lsn: str | None = None
        self.lsn = 0x1800000
        self.started = time.time()
        self.images = 0.0
        self.counted = self.started
        self.lock = threading.Lock()
        self.restarts = 0

    def mode(self) -> str:
        return self.spec["settings"].get("test.mode", "")

    def tick(self) -> None:
        now = time.time()
        regressing = self.mode() == "images-stay"
        if self.fpw or regressing:
            self.images += (now - self.counted) * IMAGE_BYTES_PER_SECOND
        self.counted = now

    def lsn_text(self) -> str:
        return f"0/{self.lsn:X}"

    def switch(self, enabled: bool) -> dict[str, Any]:
        with self.lock:
            if enabled != self.fpw:
                self.tick()
                self.fpw = enabled
                self.lsn += 0x100
                self.fpw_lsn = self.lsn_text()
                self.report_to_storage()
            return {"enabled": self.fpw, "lsn": self.fpw_lsn, "record_lsn": self.fpw_lsn, "committed": True}

    def report_to_storage(self) -> None:
        """Stands for the WAL that carries the switch to storage."""
        url = os.environ.get("WEIR_TEST_SWITCH_URL")
        if url:
            body = json.dumps({"timeline": self.spec["timeline_id"], "enabled": self.fpw, "lsn": self.fpw_lsn})
            urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST"), timeout=5).close()

    def postgres_version(self) -> str | None:
        """Of the copy it was started with, by the name of its folder."""
        folders = self.spec.get("pg_bin_dir", "").split("/servers/")
        return folders[1].split("/")[0] if len(folders) == 2 else None

    def synchronous_commit(self) -> str:
        words = {"off": "off", "receive": "remote_write", "flush": "on", "apply": "remote_apply"}
        return self.spec["settings"].get("synchronous_commit", words[self.spec.get("durability", "flush")])

    def chosen(self) -> dict[str, Any]:
        """By `test.chosen`: what stands in pg_db_role_setting of a real one, as JSON."""
        return {"chosen": json.loads(self.spec["settings"].get("test.chosen", "[]")), "more": False}

    def settings(self) -> dict[str, Any]:
        """All of the spec are in force, but for those that `test.refused` names, as JSON, with why."""
        refused = json.loads(self.spec["settings"].get("test.refused", "{}"))
        return {
            "settings": [
                {"name": name, "wanted": value, "in_force": None if name in refused else value,
                 "state": "failed" if name in refused else "in_force", "reason": refused.get(name)}
                for name, value in self.spec["settings"].items()
            ]
        }  # fmt: skip

    def idle_seconds(self) -> float | None:
        """By `test.idle_seconds`, as JSON."""
        return json.loads(self.spec["settings"].get("test.idle_seconds", "null"))

    def load(self) -> dict[str, float] | None:
        """By `test.processors`, as JSON: what Postgres uses of the machine."""
        used = json.loads(self.spec["settings"].get("test.processors", "null"))
        others = {"memory_bytes": 1 << 28, "buffer_hits_per_second": 90.0, "buffer_reads_per_second": 10.0}
        return None if used is None else {"processors": used, **others}

    def unlogged(self) -> dict[str, Any]:
        """By `test.unlogged_bytes`: all of one table."""
        count = json.loads(self.spec["settings"].get("test.unlogged_bytes", "0"))
        table = {"bytes": count, "database": "appdb", "schema": "public", "relation": "cache", "table": None}
        return {"bytes": count, "relations": [table] if count else [], "more": False}

    def status(self) -> dict[str, Any]:
        return {
            "compute_id": self.spec["compute_id"],
            "state": "starting" if self.mode() == "stuck" else "running",
            "reason": None,
            "term": 1,
            "start_lsn": "0/1800000",
            "commit_lsn": self.lsn_text(),
            "ingested_lsn": self.lsn_text(),
            "full_page_writes": {"enabled": self.fpw, "lsn": self.fpw_lsn},
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
            "start": {"total_ms": 10, "elect_ms": 1, "bundle_ms": 2, "postgres_ms": 7, "pages_fetched": 1,
                      "bytes_fetched": 8192},
            "prewarm": {"state": "loaded" if self.spec.get("prewarm") else "off", "pages_listed": 12,
                        "pages_loaded": 11, "seconds": 0.5, "reason": None},
            "port": self.spec["port"],
            "load": self.load(),
            "compute_units": self.spec.get("compute_units"),
            "active_connections": 0,
            "base_backups": int(self.mode() == "backup"),
            "restarts": self.restarts,
            "idle_seconds": self.idle_seconds(),
            "unlogged_bytes": json.loads(self.spec["settings"].get("test.unlogged_bytes", "0")),
            "commits_waiting": 2,
            "commits_unconfirmed": {"canceled": 3, "terminated": 1, "stopped": 0},
            "postgres_version": self.postgres_version(),
            "synchronous_commit": self.synchronous_commit(),
        }  # fmt: skip

    def metrics(self) -> str:
        with self.lock:
            self.tick()
        seconds = time.time() - self.started
        labels = f'compute_id="{self.spec["compute_id"]}"'
        count = int(seconds * TRANSACTIONS_PER_SECOND)
        slows = (self.mode() == "slow" and not self.fpw) or self.mode() == f"slow-on-{self.postgres_version()}"
        slow = count // 10 if slows else 0
        lines = [
            f'weir_compute_wal_bytes_total{{{labels},part="image",rmgr="heap"}} {self.images}',
            f'weir_compute_wal_bytes_total{{{labels},part="rest",rmgr="heap"}} {seconds * REST_BYTES_PER_SECOND}',
            f'weir_compute_transactions_total{{{labels},result="commit"}} {count}',
        ]
        for name, unit in (("commit_quorum_seconds", 0.001), ("page_read_seconds", 0.0001), ("page_chain_length", 1)):
            lines += [
                f'weir_compute_{name}_bucket{{{labels},le="{unit}"}} {count - slow}',
                f'weir_compute_{name}_bucket{{{labels},le="{unit * 1000}"}} {count}',
                f'weir_compute_{name}_bucket{{{labels},le="+Inf"}} {count}',
            ]
        return "\n".join(lines) + "\n"


def change_members(compute: Compute, body: dict[str, Any]) -> tuple[Any, int]:
    """Storage keeps them; what it says is the answer."""
    body = {"by": "compute", "timeline_id": compute.spec["timeline_id"]} | body
    request = urllib.request.Request(os.environ["WEIR_TEST_MEMBERS_URL"], json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read()), 200
    except urllib.error.HTTPError as error:
        return json.loads(error.read()), error.code


def handler(compute: Compute) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def answer(self, body: Any, status: int = 200) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            answers = {
                "/metrics": compute.metrics,
                "/synchronous_commit": compute.chosen,
                "/settings": compute.settings,
                "/unlogged": compute.unlogged,
            }
            self.answer(answers.get(self.path.partition("?")[0], compute.status)())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/terminate":
                self.answer({}, 202)
                threading.Timer(0.05, os._exit, [0]).start()
            elif self.path == "/full_page_writes":
                if compute.mode() == "no-switch":
                    self.answer({"code": "NOT_COMMITTED", "message": "no quorum"}, 409)
                else:
                    self.answer(compute.switch(body["enabled"]))
            elif self.path == "/members":
                self.answer(*change_members(compute, body))
            elif self.path == "/configure":
                compute.spec = body
                self.answer({"failed": json.loads(body["settings"].get("test.failed", "[]"))})
            else:
                self.answer({"code": "NOT_FOUND", "message": self.path}, 404)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--spec", "--dir", "--listen-http"):
        parser.add_argument(name, required=True)
    parser.add_argument("--user", help="of the Postgres that a double does not have")
    arguments = parser.parse_args()
    compute = Compute(Path(arguments.spec))
    if compute.mode() in {"fail", f"fail-on-{compute.postgres_version()}"}:
        sys.exit("the double was told to fail")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    host, port = arguments.listen_http.split(":")
    ThreadingHTTPServer((host, int(port)), handler(compute)).serve_forever()


if __name__ == "__main__":
    main()
