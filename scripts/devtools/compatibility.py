"""`make compatibility`: every command of `neonctl` tried on a running Weir, and the table of docs/compatibility.md
made of what it answered. The client is the published one, locked in e2e/package-lock.json."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from .paths import E2E, REPO
from .run import say

PAGE = REPO / "docs" / "compatibility.md"
BEGIN, END = "<!-- made by `make compatibility`: -->", "<!-- the end of what is made -->"
CLIENT = E2E / "node_modules" / ".bin" / "neonctl"
COMMAND_SECONDS = 120
IDLE_SECONDS = 120
LONGEST_ANSWER = 230

# What is tried, in order: PROJECT stands for a project made for it, TOMORROW, PAST and LSN for a time and points of
# its history, METRIC for one of usage, KEY for an API key's number. `projects create` comes first and `projects
# delete` last.
COMMANDS = """
me
orgs list
projects list
projects get PROJECT
projects update PROJECT --name compatibility-renamed
branches list
branches create --name dev
branches create --name keyed --no-compute
branches create --name short-lived --no-compute --expires-at TOMORROW
branches create --name of-past --no-compute --parent PAST
branches create --name sized --cu 2
branches create --name sleepy --suspend-timeout 300
branches create --name reader --type read_only
branches create --name rowless --schema-only
branches get dev
branches rename keyed renamed
branches set-default dev
branches set-default main
branches set-expiration renamed --expires-at TOMORROW
branches set-expiration renamed
branches add-compute renamed --type read_write
branches add-compute dev
roles list --branch dev
roles create --name reporter --branch dev
databases list --branch dev
databases create --name reports --owner-name reporter --branch dev
branches schema-diff main dev
branches schema-diff main dev@PAST
diff dev --branch main --project-id PROJECT
roles delete reporter --branch dev
databases delete reports --branch dev
roles delete reporter --branch dev
branches reset dev --parent
branches restore dev ^self@LSN --preserve-under-name dev-before
branches restore dev main
branches delete renamed
connection-string dev
connection-string dev --pooled
connection-string main@PAST
psql dev -- -c SELECT\u00a01
inspect db table-sizes --branch dev
operations list
status --branch dev
config status --branch dev
snapshots list
snapshots create --branch dev --name kept --expires-at TOMORROW
snapshots create --branch main --timestamp PAST --name of-past-state
snapshots get kept
snapshots update kept --name kept-longer --clear-expiration
snapshots restore kept-longer --name looked-at
snapshots finalize looked-at --name dev-replaced
snapshots restore kept-longer --target-branch dev --finalize
snapshots delete of-past-state
snapshots schedule set --branch dev --frequency daily --hour 3 --retention 604800
snapshots schedule get --branch dev
ip-allow list
ip-allow add 192.0.2.1
vpc project list
data-api get --branch dev --database appdb
neon-auth status --branch dev
functions list --branch dev
bucket list --branch dev
credentials list --branch dev
triggers list --branch dev
logs query --branch dev
api-keys list
api-keys create --name compatibility
api-keys revoke KEY
api /projects/PROJECT
api /consumption_history/projects?project_ids=PROJECT&from=PAST&to=TOMORROW&granularity=daily
api /consumption_history/v2/branches?project_ids=PROJECT&from=PAST&to=TOMORROW&granularity=daily&metrics=METRIC
projects recover PROJECT
projects delete PROJECT
""".strip().splitlines()
# Of the command's own subjects, or of a folder: they ask nothing of a project here.
LOCAL = (
    "auth, profile, link, checkout, set-context, env, open, init, bootstrap, claim, mcp, plugins, skills, ask, dev, "
    "config init|plan|apply, deploy"
)


@dataclass(frozen=True)
class Tried:
    command: str
    good: bool
    answer: str


class Stack:
    """A running Weir, and the client pointed at it from an empty folder."""

    def __init__(self, url: str, key: str, folder: Path) -> None:
        self.api, self._key, self._folder = f"{url}/api/v2", key, folder
        self.project = ""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = httpx.request(method, self.api + path, json=body, headers=headers, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def idle(self) -> None:
        """Returns when no operation of the project is open."""
        deadline = time.monotonic() + IDLE_SECONDS
        while self.project:
            try:
                operations = self.call("GET", f"/projects/{self.project}/operations?limit=100")["operations"]
            except httpx.HTTPStatusError:
                return
            except httpx.TimeoutException:
                # A busy machine: unknown, and asked again.
                operations = [{"status": "running"}]
            if not any(row["status"] in {"scheduling", "running", "cancelling"} for row in operations):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"operations of project {self.project} are open for {IDLE_SECONDS} s")
            time.sleep(0.2)

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        options = ["--api-host", self.api, "--no-analytics", "--output", "json", "--config-dir", str(self._folder)]
        named = {"projects", "me", "orgs", "api-keys", "api"}
        scope = [] if words[0] in named or "--project-id" in words else ["--project-id", self.project]
        at = words.index("--") if "--" in words else len(words)
        return subprocess.run(
            [str(CLIENT), *words[:at], *scope, *options, *words[at:]],
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "NEON_API_KEY": self._key, "CI": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devtools.compatibility", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7400", help="of a running Weir")
    parser.add_argument("--key-file", type=Path, required=True, help="secrets/api_key below its WEIR_HOME")
    options = parser.parse_args()
    if not CLIENT.exists():
        say(f"{CLIENT} is not there; `make setup` installs it")
        return 1
    with tempfile.TemporaryDirectory(prefix="weir-compatibility-") as folder:
        stack = Stack(options.url, options.key_file.read_text().strip(), Path(folder))
        tried = try_all(stack)
    write(tried)
    return 0


def try_all(stack: Stack) -> list[Tried]:
    words = ["projects", "create", "--name", "compatibility", "--database", "appdb", "--role", "app_owner"]
    made = stack.run(words)
    tried = [judged(" ".join(words), made)]
    if made.returncode != 0:
        raise SystemExit(f"no project could be made: {made.stderr}")
    stack.project = json.loads(made.stdout)["project"]["id"]
    stack.idle()
    # Something for schemas to differ in, and a moment between the two.
    history = f"/projects/{stack.project}/branches/{_main(stack)['id']}/history"
    time.sleep(2)
    stands = {"PROJECT": stack.project, "TOMORROW": _text(datetime.now(UTC) + timedelta(days=1))}
    stands["METRIC"] = "compute_unit_seconds"
    stands |= {"PAST": _text(datetime.now(UTC) - timedelta(seconds=1))}
    stands["LSN"] = stack.call("GET", history)["newest_lsn"]
    for command in COMMANDS:
        if "KEY" in command.split():
            keys = stack.call("GET", "/api_keys")
            stands["KEY"] = next((str(row["id"]) for row in keys if row["name"] == "compatibility"), "0")
        stack.idle()
        words = [_filled(word, stands) for word in command.split(" ")]
        try:
            tried.append(judged(command.replace("\u00a0", " "), stack.run(words)))
        except subprocess.TimeoutExpired:
            tried.append(Tried(command, good=False, answer=f"no end within {COMMAND_SECONDS} s"))
        say(f"{'ok     ' if tried[-1].good else 'refused'}  {command}: {tried[-1].answer}")
    return tried


def _main(stack: Stack) -> dict[str, Any]:
    return next(row for row in stack.call("GET", f"/projects/{stack.project}/branches")["branches"] if row["default"])


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _filled(word: str, stands: dict[str, str]) -> str:
    for name, value in stands.items():
        word = re.sub(rf"\b{name}\b", value, word)
    return word.replace("\u00a0", " ")


def judged(command: str, ended: subprocess.CompletedProcess[str]) -> Tried:
    """What the client's user reads: the error, or that there was none. Ids stand by their kinds, so that the table
    is the same in each run."""
    if ended.returncode == 0:
        return Tried(command, good=True, answer="")
    lines = [line for line in (ended.stderr + "\n" + ended.stdout).splitlines() if line.strip()]
    text = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(line.strip() for line in lines))
    text = re.sub(r"^(INFO:.*?)?ERROR:\s*", "", text)
    for pattern, name in (
        (r"\bbr-[a-z]+-[a-z]+-[a-z0-9]{8}\b", "BRANCH"),
        (r"\bep-[a-z]+-[a-z]+-[a-z0-9]{8}\b", "ENDPOINT"),
        (r"\b[a-z]+-[a-z]+-\d{8}\b", "PROJECT"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)?", "TIME"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
        (r"127\.0\.0\.1:\d+", "HOST"),
    ):
        text = re.sub(pattern, name, text)
    return Tried(command, good=False, answer=text[:LONGEST_ANSWER] + ("…" if len(text) > LONGEST_ANSWER else ""))


def write(tried: list[Tried]) -> None:
    version = json.loads((E2E / "node_modules" / "neonctl" / "package.json").read_text())["version"]
    good = sum(each.good for each in tried)
    rows = [f"`neonctl` {version}: {good} of {len(tried)} commands do what they say.", ""]
    rows += ["| command | result | what it said |", "|---|---|---|"]
    for each in tried:
        answer = each.answer.replace("|", "\\|").replace("<", "&lt;")
        rows.append(f"| `{each.command}` | {'works' if each.good else 'refused'} | {answer} |")
    rows += ["", f"Not tried, since they work on a folder or ask Neon's own services: {LOCAL}."]
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n\n" + "\n".join(rows) + "\n\n" + END + after)
    say(f"{PAGE.relative_to(REPO)} is written")


if __name__ == "__main__":
    sys.exit(main())
