"""Whoever runs programs with a server's rights has the system calls that Postgres needs, and no others."""

from __future__ import annotations

import base64
import json
import os
import platform

import psycopg
import pytest
from harness import Compute, Engine
from strangers import PYTHON, as_postgres, run

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives computes users of their own"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are those of x86_64"),
]

# Of a range that nothing else on a machine has.
MALLORY = 52_003
IGNORED = 1 << 40
# Name, number and arguments. Should the kernel answer one, no harm is done: nothing is named that exists.
CALLS: list[tuple[str, int, list[int]]] = [
    ("ptrace", 101, [0]),
    ("process_vm_readv", 310, [1]),
    ("process_vm_writev", 311, [1]),
    ("pidfd_getfd", 438, [-1]),
    ("kexec_load", 246, [0]),
    ("bpf", 321, [0]),
    ("perf_event_open", 298, [0]),
    ("userfaultfd", 323, [0]),
    ("add_key", 248, [0]),
    ("request_key", 249, [0]),
    ("keyctl", 250, [0]),
    ("mount", 165, [0]),
    ("umount2", 166, [0]),
    ("fsopen", 430, [0]),
    ("open_tree", 428, [-1]),
    ("unshare", 272, [0x1000_0000]),
    ("setns", 308, [-1]),
    ("clone a user namespace", 56, [0x1000_0800]),
    ("the same with a bit too many", 56, [IGNORED | 0x1000_0800]),
    ("init_module", 175, [0]),
    ("finit_module", 313, [-1]),
    ("delete_module", 176, [0]),
    ("open_by_handle_at", 304, [-1]),
    ("io_uring_setup", 425, [1]),
    ("io_uring_enter", 426, [-1]),
    ("io_uring_register", 427, [-1]),
    ("personality", 135, [0x4_0000]),
    ("socket of AF_NETLINK", 41, [16, 3, 0]),
    ("the same with a bit too many", 41, [IGNORED | 16, 3, 0]),
    ("socket of AF_PACKET", 41, [17, 3, 0]),
    ("socket of AF_VSOCK", 41, [40, 1, 0]),
    ("socket of AF_ALG", 41, [38, 5, 0]),
    ("raw socket", 41, [2, 3, 1]),
    ("socket of SCTP", 41, [2, 1, 132]),
    ("socket of MPTCP", 41, [2, 1, 262]),
    ("datagrams", 41, [2, 2, 0]),
    ("datagrams of IPv6", 41, [10, 2, 17]),
    ("datagrams by files", 41, [1, 2, 0]),
    ("connect", 42, [-1]),
    ("connecting by sendto", 44, [-1, 0, 0, 0x2000_0000]),
    ("connecting by sendmsg", 46, [-1, 0, 0x2000_0000]),
    ("connecting by sendmmsg", 307, [-1, 0, 0, 0x2000_0000]),
    ("TIOCSTI", 16, [0, 0x5412]),
    ("the same with a bit too many", 16, [0, IGNORED | 0x5412]),
    ("seccomp", 317, [2]),
    ("swapon", 167, [0]),
    ("reboot", 169, [0]),
    ("settimeofday", 164, [0]),
    ("acct", 163, [-1]),
    ("quotactl", 179, [0]),
    ("iopl", 172, [3]),
    ("ioperm", 173, [0]),
    ("modify_ldt", 154, [0]),
    ("chroot", 161, [0]),
]
# Allowed to every user of a machine, so that it is the filters who refuse them.
OF_EVERYBODY = {"ptrace", "process_vm_readv", "personality", "socket of AF_NETLINK", "seccomp", "TIOCSTI"}
MAKES_CALLS = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
def answer(number, arguments):
    words = [ctypes.c_long(word) for word in [number, *arguments] + [0] * (6 - len(arguments))]
    done = libc.syscall(*words)
    return "done" if done != -1 else errno.errorcode[ctypes.get_errno()]
print(json.dumps([[name, answer(number, arguments)] for name, number, arguments in CALLS]))
"""
# getpid by the way of 32-bit programs: mov eax, 20; int 0x80; ret.
CALLS_AS_32_BIT = """
import ctypes, mmap
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex("b814000000cd80c3"))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))())
"""


@pytest.fixture(name="compute", scope="module")
def _compute(shared: Engine) -> Compute:
    return shared.compute(shared.create_timeline(), user=MALLORY)


def packed(code: str) -> str:
    """A Python program as one word of a command line."""
    return f"import base64; exec(base64.b64decode('{base64.b64encode(code.encode()).decode()}'))"


def test_what_reaches_others_is_refused_and_says_so(compute: Compute) -> None:
    code = f"CALLS = {CALLS!r}\n{MAKES_CALLS}"
    (told,) = as_postgres(compute.admin(), f'{PYTHON} -c "{packed(code)}"')
    inside = json.loads(told)
    assert [name for name, _, _ in CALLS] == [name for name, _ in inside]
    assert [entry for entry in inside if entry[1] != "EPERM"] == []
    # The same user outside of a compute is answered otherwise.
    outside = run(MALLORY, PYTHON, "-c", packed(code))
    assert outside.returncode == 0, outside.stderr
    refused = {name for name, answer in json.loads(outside.stdout) if answer == "EPERM"}
    assert not refused & OF_EVERYBODY, refused


def test_calls_of_other_kinds_of_programs_are_refused(compute: Compute) -> None:
    x32 = [["getpid", 0x4000_0000 | 39, []], ["ptrace", 0x4000_0000 | 521, [0]], ["clone3", 435, [0]]]
    (told,) = as_postgres(compute.admin(), f'{PYTHON} -c "{packed(f"CALLS = {x32!r}{MAKES_CALLS}")}"')
    assert {answer for _, answer in json.loads(told)} == {"ENOSYS"}
    if run(MALLORY, PYTHON, "-c", packed(CALLS_AS_32_BIT)).returncode != 0:
        pytest.skip("this kernel has no 32-bit system calls")
    with pytest.raises(psycopg.Error, match=r"exit code 159|signal 31"):
        as_postgres(compute.admin(), f'{PYTHON} -c "{packed(CALLS_AS_32_BIT)}"')
    assert compute.sql("SELECT 1") == [(1,)]
    assert compute.status()["restarts"] == 0, "the program that makes them ends, and nothing else"


def test_every_process_of_the_server_is_under_both_filters(compute: Compute) -> None:
    lines = as_postgres(compute.admin(), "cat /proc/[0-9]*/status 2>/dev/null | grep '^Seccomp:'")
    assert len(lines) > 5
    assert {line.split()[1] for line in lines} == {"2"}, "filtered, each of them"


def test_parallel_queries_and_compiled_ones_go_on(compute: Compute) -> None:
    compute.sql("CREATE TABLE numbers AS SELECT n, n::text AS word FROM generate_series(1, 50000) AS n")
    with compute.connect() as session:
        for setting in (
            "force_parallel_mode = on",
            "parallel_setup_cost = 0",
            "min_parallel_table_scan_size = 0",
            "jit = on",
            "jit_above_cost = 0",
            "jit_inline_above_cost = 0",
            "jit_optimize_above_cost = 0",
            # Spills to files.
            "work_mem = '64kB'",
        ):
            session.execute(f"SET {setting}")
        explain = "EXPLAIN (ANALYZE, FORMAT JSON) SELECT sum(n), count(DISTINCT word) FROM numbers WHERE n % 3 <> 7"
        row = session.execute(explain).fetchone()
        assert row is not None
        plan = row[0][0]
        assert '"Workers Launched": 0' not in json.dumps(plan)
        assert "Workers Launched" in json.dumps(plan)
        available = session.execute("SELECT pg_jit_available()").fetchone()
        assert available is not None
        assert available[0] == ("JIT" in plan), "compiled wherever the server can"
