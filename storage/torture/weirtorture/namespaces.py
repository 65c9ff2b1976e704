"""Networks of a trial's own, by the kernel's network namespaces: one safekeeper's wire is cut, one way or both.

A trial that may do so runs in a namespace of its own (`apart.py`), and each safekeeper in another one; a pair of
virtual interfaces joins the two. What is lost is sent to a hardware address that nobody has, so that the kernel of
the one that sends notices nothing, and TCP on both ends does what it does when packets do not arrive.

Only interfaces in namespaces of the trial's own are ever touched: `Node` refuses to work in that of whoever started
the trial. All of it ends with the processes.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# Nobody has it.
NOWHERE = "02:00:00:00:00:fe"
APART = ["unshare", "--net", "--"]
# Tells a trial which network it was started from.
OUTSIDE = "WEIR_TORTURE_OUTSIDE"


def can_separate() -> bool:
    """Whether this process may make namespaces, and the kernel joins two of them."""
    command = "ip link set lo up && ip link add torture type veth peer name eth0 && exec unshare --net true"
    try:
        return subprocess.run([*APART, "sh", "-ec", command], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def own_network() -> str:
    """The kernel's name of the network that this process has."""
    return str(Path("/proc/self/ns/net").readlink())


def is_apart() -> bool:
    """Whether this process has another network than whoever started the trial, who has said which that is."""
    return os.environ.get(OUTSIDE, own_network()) != own_network()


def _ip(*arguments: str, inside: list[str] | None = None) -> None:
    done = subprocess.run([*(inside or []), "ip", *arguments], capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")


@dataclass
class Node:
    """The network of one safekeeper. `launcher` starts programs in it; everybody else reaches them at `address`."""

    number: int
    launcher: list[str] = field(default_factory=list[str])
    _holder: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"10.77.{self.number}.2"

    @property
    def _near(self) -> tuple[str, str, str]:
        """The end of everybody else: interface, address, hardware address."""
        return f"node{self.number}", f"10.77.{self.number}.1", f"02:00:00:00:{self.number:02x}:01"

    @property
    def _far(self) -> tuple[str, str, str]:
        return "eth0", self.address, f"02:00:00:00:{self.number:02x}:02"

    def start(self) -> None:
        if not is_apart():
            raise RuntimeError("the machine's own network is nothing to experiment with")
        # Keeps the namespace while no safekeeper runs in it.
        self._holder = subprocess.Popen([*APART, "sleep", "infinity"])
        namespace = Path(f"/proc/{self._holder.pid}/ns/net")
        until = time.monotonic() + 20
        while str(namespace.readlink()) == own_network():
            if self._holder.poll() is not None or time.monotonic() > until:
                raise RuntimeError("no network namespace was made")
            time.sleep(0.01)
        self.launcher = ["nsenter", f"--net={namespace}", "--"]
        (near, near_address, near_hardware), (far, far_address, far_hardware) = self._near, self._far
        peer = ("peer", "name", far, "address", far_hardware, "netns", str(self._holder.pid))
        _ip("link", "add", near, "address", near_hardware, "type", "veth", *peer)
        _ip("addr", "add", f"{near_address}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("addr", "add", f"{far_address}/30", "dev", far, inside=self.launcher)
        _ip("link", "set", "lo", "up", inside=self.launcher)
        _ip("link", "set", far, "up", inside=self.launcher)
        self.heal()

    def lose(self, what: str) -> None:
        """Loses what is sent `there`, to the safekeeper, what comes `back` from it, or `both`."""
        if what in ("there", "both"):
            self._send_there(NOWHERE)
        if what in ("back", "both"):
            self._send_back(NOWHERE)

    def heal(self) -> None:
        self._send_there(self._far[2])
        self._send_back(self._near[2])

    def _send_there(self, hardware: str) -> None:
        _ip("neigh", "replace", self._far[1], "lladdr", hardware, "dev", self._near[0], "nud", "permanent")

    def _send_back(self, hardware: str) -> None:
        arguments = ("neigh", "replace", self._near[1], "lladdr", hardware, "dev", self._far[0], "nud", "permanent")
        _ip(*arguments, inside=self.launcher)

    def close(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.kill()
            holder.wait()
