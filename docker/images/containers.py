"""The services of docker/compose.yaml as containers of runc, without Docker: what `make test-images` runs.

Each service gets what the Compose file gives it: its image's root, read-only where it says so, capabilities, user,
secrets as files, volumes, and a network namespace of its own on the networks it names. `init`, logging limits and
seccomp are Docker's and are not imitated. Needs root, runc, buildah and iproute2.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composed import COMPOSE, Mount, Service, services

# What Docker leaves a container that drops nothing.
_USUAL = (
    *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE"),
)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  a container's own
_FUSE = {"type": "c", "path": "/dev/fuse", "major": 10, "minor": 229, "fileMode": 0o666, "uid": 0, "gid": 0}


class ContainerError(Exception):
    """A container did not do what it should; the message has the end of its log."""


def run(*words: str | Path, check: bool = True, timeout: float = 120) -> str:
    result = subprocess.run(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if check and result.returncode != 0:
        said = (result.stderr or result.stdout).strip()[-2000:]
        raise ContainerError(f"`{' '.join(map(str, words))}` failed with {result.returncode}: {said}")
    return result.stdout


@dataclass
class Network:
    """A bridge with an address of its own, by which this machine reaches the containers on it."""

    name: str
    subnet: ipaddress.IPv4Network
    members: dict[str, str] = field(default_factory=dict[str, str])

    def create(self) -> None:
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.subnet[1]}/{self.subnet.prefixlen}", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def address(self, service: str) -> str:
        return self.members.setdefault(service, str(self.subnet[10 + len(self.members)]))

    def remove(self) -> None:
        run("ip", "link", "delete", self.name, check=False)


class Composition:
    """All containers of one Compose document, below `folder`, with the files of `secrets`. `prefix` begins the names
    of namespaces, bridges and containers; it is short, since an interface's name has 15 characters. `profiles`: of
    Compose; `without`: services that are left out."""

    def __init__(
        self,
        composed: Mapping[str, Any],
        folder: Path,
        secrets: Path,
        prefix: str = "weirt",
        profiles: Collection[str] = (),
        without: Collection[str] = (),
    ) -> None:
        self.folder, self._secrets, self._prefix = folder, secrets, prefix
        self._composed = composed
        chosen = services(composed, profiles).items()
        self.services = {name: service for name, service in chosen if name not in without}
        inner = composed["networks"]["weir"]["ipam"]["config"][0]["subnet"]
        subnet = ipaddress.IPv4Network(inner)
        beside = ipaddress.IPv4Network((int(subnet.network_address) + subnet.num_addresses, subnet.prefixlen))
        self.networks = {"weir": Network(f"{prefix}0", subnet), "public": Network(f"{prefix}1", beside)}
        self._working: dict[str, str] = {}
        self._roots: dict[str, Path] = {}
        self._configs: dict[str, dict[str, Any]] = {}

    # The order of everything: networks, then each service when those it waits for are as it wants them.

    def prepare(self) -> None:
        for network in self.networks.values():
            network.create()
        for service in self.services.values():
            for name in service.networks:
                self.networks[name].address(service.name)
        for service in self.services.values():
            self._namespace(service)

    def start_all(self, seconds: float) -> None:
        """Starts every service once those it depends on are ready. Raises ContainerError after so many seconds."""
        deadline = time.monotonic() + seconds
        waiting = dict(self.services)
        done: set[str] = set()
        while waiting:
            for name, service in list(waiting.items()):
                if set(service.after) <= done:
                    self.start(name)
                    del waiting[name]
            for name in self._started() - done:
                if self._is_ready(self.services[name]):
                    done.add(name)
            self._refuse_after(deadline, sorted(set(self.services) - done))
            time.sleep(0.3)
        for name in sorted(set(self.services) - done):
            self.wait(name, max(1.0, deadline - time.monotonic()))

    def wait(self, name: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._is_ready(self.services[name]):
            self._refuse_after(deadline, [name])
            time.sleep(0.3)

    def _refuse_after(self, deadline: float, names: Sequence[str]) -> None:
        if time.monotonic() < deadline or not names:
            return
        raise ContainerError(f"not ready in time: {', '.join(names)}; the log of {names[0]}:\n{self.log(names[0])}")

    def _started(self) -> set[str]:
        return {name for name in self.services if (self.folder / name / "config.json").exists()}

    def _is_ready(self, service: Service) -> bool:
        state = self.state(service.name)
        if not service.health:
            if state == "stopped" and not self._ended_well(service.name):
                raise ContainerError(f"{service.name} failed:\n{self.log(service.name)}")
            return state == "stopped"
        if state == "stopped":
            # `restart: unless-stopped`, which is Docker's part.
            self.start(service.name)
            return False
        return state == "running" and self.execute(service.name, *service.health)[0] == 0

    def _ended_well(self, name: str) -> bool:
        """runc says that a container has stopped before the shell around it has written how."""
        path = self.folder / name / "status"
        deadline = time.monotonic() + 30
        while not (path.exists() and path.read_text().strip()):
            if time.monotonic() > deadline:
                raise ContainerError(f"nobody knows how {name} ended:\n{self.log(name)}")
            time.sleep(0.1)
        return path.read_text().strip() == "0"

    # One container.

    def start(self, name: str) -> None:
        service = self.services[name]
        run("runc", "delete", "--force", self._id(name), check=False)
        bundle = self.folder / name
        bundle.mkdir(parents=True, exist_ok=True)
        (bundle / "status").unlink(missing_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._spec(service), indent=1))
        # The shell is there for the exit status; it stays as long as the container.
        words = f'runc run --bundle "{bundle}" "{self._id(name)}" >> "{bundle}/log" 2>&1; echo $? > "{bundle}/status"'
        subprocess.Popen(["/bin/sh", "-c", words], stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while self.state(name) == "absent" and not (bundle / "status").exists():
            if time.monotonic() > deadline:
                raise ContainerError(f"{name} was not made:\n{self.log(name)}")
            time.sleep(0.05)

    def state(self, name: str) -> str:
        """`running`, `stopped`, `created` or `absent`; a container that has ended is `stopped`."""
        if (self.folder / name / "status").exists():
            return "stopped"
        said = run("runc", "state", self._id(name), check=False)
        return str(json.loads(said)["status"]) if said.strip() else "absent"

    def kill(self, name: str) -> None:
        """As a power cut would: nothing of the container gets a word."""
        run("runc", "kill", "--all", self._id(name), "KILL", check=False)
        self._gone(name, 30)

    def stop(self, name: str, seconds: float = 60) -> None:
        signal = str(self.services[name].raw.get("stop_signal", "SIGTERM"))
        run("runc", "kill", self._id(name), signal, check=False)
        try:
            self._gone(name, seconds)
        except ContainerError:
            self.kill(name)

    def _gone(self, name: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.state(name) not in {"stopped", "absent"}:
            if time.monotonic() > deadline:
                raise ContainerError(f"{name} does not end:\n{self.log(name)}")
            time.sleep(0.1)

    def execute(self, name: str, *words: str, seconds: float = 30) -> tuple[int, str]:
        """Runs a program in the container, as its user: exit status and what it said."""
        result = subprocess.run(
            ["runc", "exec", self._id(name), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        return result.returncode, result.stdout + result.stderr

    def log(self, name: str) -> str:
        path = self.folder / name / "log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-25:]) if path.exists() else "(no log)"

    def close(self) -> None:
        """Ends and removes everything that was made."""
        for name, service in self.services.items():
            run("runc", "delete", "--force", self._id(name), check=False)
            # A namespace may outlive its name while a connection of it is not closed, and its cable with it.
            for number, _ in enumerate(service.networks):
                run("ip", "link", "delete", self._cable(service, number), check=False)
            run("ip", "netns", "delete", self._id(name), check=False)
        for network in self.networks.values():
            network.remove()
        for container in self._working.values():
            run("buildah", "rm", container, check=False)

    def _id(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    # What it is made of.

    def image(self, service: Service) -> tuple[Path, dict[str, Any]]:
        """The root of the service's image and the image's configuration. Services of one image share the root, which
        is read-only."""
        if service.image not in self._roots:
            container = run("buildah", "from", "--pull-never", f"localhost/{service.image}").strip()
            self._working[service.image] = container
            self._roots[service.image] = Path(run("buildah", "mount", container).strip())
            about = json.loads(run("buildah", "inspect", container))
            self._configs[service.image] = about["OCIv1"]["config"]
        return self._roots[service.image], self._configs[service.image]

    def _namespace(self, service: Service) -> None:
        space = self._id(service.name)
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        for number, name in enumerate(service.networks):
            network = self.networks[name]
            outer, inner = self._cable(service, number), f"eth{number}"
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
            run("ip", "link", "set", outer, "master", network.name, "up")
            address = f"{network.address(service.name)}/{network.subnet.prefixlen}"
            run("ip", "-n", space, "address", "add", address, "dev", inner)
            run("ip", "-n", space, "link", "set", inner, "up")

    def _cable(self, service: Service, number: int) -> str:
        return f"{self._prefix}{list(self.services).index(service.name)}{'ab'[number]}"

    def _spec(self, service: Service) -> dict[str, Any]:
        root, config = self.image(service)
        raw = service.raw
        dropped, added = raw.get("cap_drop", []), raw.get("cap_add", [])
        kept = {f"CAP_{name}" for name in ([] if dropped == ["ALL"] else _USUAL)} | {f"CAP_{name}" for name in added}
        uid, gid = _user(root, str(raw.get("user", config.get("User", "0:0"))))
        # As Docker has it: who is not root has none, even of those that the container may have.
        held = sorted(kept) if uid == 0 else []
        environment = dict(word.split("=", 1) for word in config.get("Env", [])) | service.environment
        arguments = [*config.get("Entrypoint", []), *(service.command or config.get("Cmd", []))]
        devices = [_FUSE] if "/dev/fuse" in raw.get("devices", []) else []
        allowed = [{"allow": False, "access": "rwm"}, *_usual_devices()]
        if devices:
            allowed.append({"allow": True, "type": "c", "major": 10, "minor": 229, "access": "rwm"})
        spaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": uid, "gid": gid},
                "args": arguments,
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": config.get("WorkingDir") or "/",
                "capabilities": {"bounding": sorted(kept), "effective": held, "permitted": held},
                "noNewPrivileges": "no-new-privileges:true" in raw.get("security_opt", []),
            },
            "root": {"path": str(root), "readonly": bool(raw.get("read_only"))},
            "hostname": raw.get("hostname", service.name),
            "mounts": self._mounts(service, root),
            "linux": {
                "namespaces": [*spaces, {"type": "network", "path": f"/var/run/netns/{self._id(service.name)}"}],
                "devices": devices,
                "resources": {"devices": allowed},
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        }

    def _mounts(self, service: Service, root: Path) -> list[dict[str, Any]]:
        quiet = ["nosuid", "noexec", "nodev"]
        shm = str(service.raw.get("shm_size", "64m"))
        mounts: list[dict[str, Any]] = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            _tmpfs("/dev", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance"],
            },
            _tmpfs(_SHARED_MEMORY, [*quiet, "mode=1777", f"size={shm}"]),
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*quiet, "ro"]},
            *(_tmpfs_of(text) for text in service.raw.get("tmpfs", [])),
        ]
        bound = {self._hosts(service): "/etc/hosts"}
        for secret, target in service.secrets.items():
            bound[self._secrets / Path(self._composed["secrets"][secret]["file"]).name] = target
        mounts += [_bind(source, target, "ro") for source, target in bound.items()]
        mounts += [
            _bind(self._source(mount, root), mount.target, "ro" if mount.read_only else "rw")
            for mount in service.mounts
        ]
        return mounts

    def _source(self, mount: Mount, root: Path) -> Path:
        if not mount.is_volume:
            return (COMPOSE.parent / mount.source).resolve()
        return self._volume(mount.source, root, mount.target)

    def _hosts(self, service: Service) -> Path:
        """Names of the services on networks that this one is on, the installation's own network first."""
        lines = ["127.0.0.1 localhost"]
        named: set[str] = set()
        for name in sorted(service.networks, key=lambda name: name != "weir"):
            for other, address in self.networks[name].members.items():
                if other not in named:
                    lines.append(f"{address} {other}")
                    named.add(other)
        path = self.folder / service.name / "hosts"
        path.write_text("\n".join(lines) + "\n")
        return path

    def volume(self, name: str) -> Path:
        """Where the volume is on this machine."""
        return self.folder / "volumes" / name

    def _volume(self, name: str, root: Path, target: str) -> Path:
        """A named volume begins as what the image has at its place, which gives it its owner and mode."""
        path = self.volume(name)
        if not path.exists():
            path.mkdir(parents=True)
            about = (root / target.lstrip("/")).stat()
            os.chown(path, about.st_uid, about.st_gid)
            path.chmod(about.st_mode & 0o7777)
        return path


def _user(root: Path, text: str) -> tuple[int, int]:
    """`10001:10001`, or a name of the image's own /etc/passwd; nothing is root."""
    if not text:
        return 0, 0
    if text[0].isdigit():
        uid, _, gid = text.partition(":")
        return int(uid), int(gid or uid)
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == text:
            return int(fields[2]), int(fields[3])
    raise ContainerError(f"the image has no user {text}")


def _bind(source: Path, target: str, mode: str) -> dict[str, Any]:
    return {
        "destination": target,
        "type": "bind",
        "source": str(source),
        "options": ["rbind", mode, "nosuid", "nodev"],
    }


def _tmpfs(path: str, options: list[str]) -> dict[str, Any]:
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options}


def _tmpfs_of(text: str) -> dict[str, Any]:
    """As Compose writes one: a path, or PATH:mode=0700."""
    path, _, options = text.partition(":")
    return _tmpfs(path, ["nosuid", "nodev", options or "mode=1777"])


def _usual_devices() -> list[dict[str, Any]]:
    """null, zero, full, random, urandom, tty, and pseudo terminals."""
    numbers = ((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2))
    return [{"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"} for major, minor in numbers]


def missing_programs() -> list[str]:
    return [name for name in ("runc", "buildah", "ip") if shutil.which(name) is None]
