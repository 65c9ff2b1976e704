"""The house rules must find what they claim to find, or they are decoration."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import tidy


def _long(before: str, after: str, lines: int) -> str:
    return before + "\n".join("    let _ = 0;" for _ in range(lines)) + "\n" + after


def test_long_functions_are_found_in_every_language():
    rust = _long("impl A {\n    pub async fn long() {\n", "    }\n}\n", 120)
    typescript = _long("export function long() {\n", "}\n", 120)
    arrow = _long("export const long = (a: string) => {\n", "}\n", 120)
    go = _long("func (a *A) long(\n    b int,\n) error {\n", "}\n", 120)
    python = "def long():\n" + "    a = 0\n" * 120
    for name, text in (("a.rs", rust), ("a.ts", typescript), ("a.ts", arrow), ("a.go", go), ("a.py", python)):
        assert [finding.key for finding in tidy.lengths(name, text)] == [f"{name}:long"], text[:40]


def test_short_functions_and_files_pass():
    assert not list(tidy.lengths("a.rs", _long("fn short() {\n", "}\n", 10)))


def test_long_files_are_found_and_tests_may_be_longer():
    text = "a = 0\n" * (tidy.FILE_LINES + 1)
    assert [finding.key for finding in tidy.lengths("a.py", text)] == ["a.py"]
    assert not list(tidy.lengths("tests/a.py", text))
    assert [finding.key for finding in tidy.lengths("a.go", text)] == ["a.go"]
    assert not list(tidy.lengths("a_test.go", text))


def test_what_must_not_get_in_is_found():
    word = "TO" + "DO"
    path = "/wo" + "rk/main"
    assert len(list(tidy.forbidden("a.py", f"# {word}: later\n# see {path}/x\nfine = 1\n"))) == 2
    assert not list(tidy.forbidden("a.py", "url = base/work/x  # a path of its own\n"))


@pytest.mark.parametrize(
    ("kind", "name"), [("struct", "Told"), ("class", "Mending"), ("fn", "tell"), ("def", "look")]
)
def test_a_retired_name_is_found(kind: str, name: str):
    assert len(list(tidy.forbidden("a.rs", f"    {kind} {name}(&self)"))) == 1
    # Words of a sentence and longer names are not retired.
    assert not list(tidy.forbidden("a.rs", f"/// {name} after each batch.\n{kind} {name}_off"))


def test_documentation_that_begins_with_a_pronoun_is_found():
    found = list(tidy.nameless("a.rs", "    /// Whose log this is.\n    pub member: MemberId,\n"))
    assert len(found) == 1
    # A later sentence may begin so, and so may a comment within code.
    text = "/// The member whose log this is.\n/// It never changes.\npub member: MemberId,\n// It is known here.\n"
    assert not list(tidy.nameless("a.rs", text))


def test_a_task_of_a_storage_program_that_nobody_watches_is_found():
    text = 'fn a() {\n    tokio::spawn(b());\n    stalls::spawn("b", b());\n    block_in_place(c);\n}\n'
    name = "storage/crates/pageserver/src/a.rs"
    assert [line.split(" ")[0] for line in tidy.unwatched(name, text)] == [f"{name}:2", f"{name}:4"]
    assert not list(tidy.unwatched(name, "#[cfg(test)]\nmod tests {\n    tokio::spawn(b());\n}\n"))
    assert not list(tidy.unwatched("storage/crates/proxy/src/a.rs", text))
