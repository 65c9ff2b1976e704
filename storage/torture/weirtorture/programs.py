"""The program beside Python, `weir-torture`: the checker of histories, and the proxy between the parts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

REPO = Path(__file__).resolve().parents[3]
if str(REPO / "scripts") not in sys.path:
    sys.path.append(str(REPO / "scripts"))

from devtools.builds import build_torture  # noqa: E402
from devtools.paths import BIN  # noqa: E402

PROGRAM = BIN / "weir-torture"


def build() -> None:
    """A second when it is there already. The Go compiler and the module come as `scripts/setup` gets them."""
    build_torture()


def check(history: Path, pictures: Path | None = None) -> dict[str, Any]:
    """The checker's verdict on a history: `operations`, `keys`, `unknown`, `wrong`, `undecided`."""
    command = [str(PROGRAM), "check", str(history), *(["--pictures", str(pictures)] if pictures else [])]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=900)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the checker gave no verdict on {history}: {done.stderr}")
    return json.loads(done.stdout)


@dataclass
class Network:
    """Links through one proxy. A link carries whoever `near` is to one server; rules go by those two names.

    A rule that is set before a link is opened holds for it as well.
    """

    seed: int
    _child: subprocess.Popen[str] | None = None
    _links: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _addresses: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    _rules: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        self._child = subprocess.Popen([PROGRAM, "proxy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            # Its standard input ends, and with that the proxy.
            child.communicate(timeout=10)

    def open(self, near: str, far: str, address: str) -> str:
        """The address of a new link to `address`."""
        with self._lock:
            name = f"{near}>{far}"
            self._links[name] = (near, far)
            told = self._order({"op": "open", "link": name, "to": address, "seed": self.seed + len(self._links)})
            self._apply(name)
            self._addresses[near, far] = f"127.0.0.1:{told['port']}"
            return self._addresses[near, far]

    def address(self, near: str, far: str) -> str:
        return self._addresses[near, far]

    def begin(self, near: str, far: tuple[str, ...], **weather: Any) -> dict[str, Any]:
        """Weather on all links from whoever's name begins with `near` to each of `far`, until `end` is given it."""
        rule = {"near": near, "far": far, "weather": weather}
        with self._lock:
            self._rules.append(rule)
            self._apply_all()
        return rule

    def end(self, rule: dict[str, Any]) -> None:
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]
            self._apply_all()

    def _apply_all(self) -> None:
        for name in self._links:
            self._apply(name)

    def _apply(self, name: str) -> None:
        near, far = self._links[name]
        weather: dict[str, Any] = {}
        for rule in self._rules:
            if near.startswith(rule["near"]) and far in rule["far"]:
                weather |= rule["weather"]
        self._order({"op": "set", "link": name, **weather})

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        told = cast("dict[str, Any]", json.loads(child.stdout.readline()))
        if told.get("error"):
            raise RuntimeError(f"the proxy refused {order}: {told['error']}")
        return told
