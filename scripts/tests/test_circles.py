"""The check finds circles of Rust modules, and takes nothing else for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from devtools import circles


def crate(tmp_path: Path, files: dict[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return circles.Crate(tmp_path / "src").arrows()


def test_two_files_that_use_each_other_are_a_circle(tmp_path: Path):
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b; pub use a::A;",
            "a.rs": "use crate::b::B; pub struct A(B);",
            "b.rs": "pub struct B; fn of() -> crate::a::A { todo!() }",
        },
    )
    assert arrows == {"lib": set(), "a": {"b"}, "b": {"a"}}
    assert circles.circles(arrows) == [("a", "b")]


def test_a_name_leads_to_the_file_that_defines_it(tmp_path: Path):
    """`b` takes A from the crate's root and C from the room that passes it on."""
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b; mod room;\npub use a::{A, Other as Renamed};\nuse b::B;\nfn f(_: B) {}",
            "a.rs": "pub struct A; pub struct Other;",
            "b.rs": "use crate::{A, Renamed}; use crate::room::C; pub struct B(A, Renamed, C);",
            "room/mod.rs": "mod c; pub use c::C;",
            "room/c.rs": "pub struct C;",
        },
    )
    assert arrows["b"] == {"a", "room::c"}
    assert arrows["lib"] == {"b"}
    assert circles.circles(arrows) == []


def test_a_module_and_what_lies_in_it_are_one_room(tmp_path: Path):
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod room;",
            "room.rs": "mod part; use part::Part; pub struct Room(Part); pub struct Shape;",
            "room/part.rs": "use super::Shape; pub struct Part(Shape);",
        },
    )
    assert circles.circles(arrows) == []


def test_rooms_that_use_each_other_by_different_files_are_a_circle(tmp_path: Path):
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b;",
            "a.rs": "mod x; mod y;",
            "a/x.rs": "use crate::b::B; pub struct X(B);",
            "a/y.rs": "pub struct Y;",
            "b.rs": "mod part; pub struct B;",
            "b/part.rs": "fn of() -> crate::a::y::Y { todo!() }",
        },
    )
    assert circles.circles(arrows) == []
    assert circles.circles(circles.rooms(arrows)) == [("a", "b")]


@pytest.mark.parametrize(
    "unused",
    [
        "// use crate::a::A;",
        "/* crate::a::A */",
        'const TEXT: &str = "crate::a::A";',
        "#[cfg(test)]\nmod tests { use crate::a::A; fn f() { { A } } }",
        "#[cfg(test)]\nmod b_tests;",
    ],
)
def test_comments_texts_and_tests_use_nothing(tmp_path: Path, unused: str):
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b;",
            "a.rs": "use crate::b::B; pub struct A(B);",
            "b.rs": f"pub struct B;\n{unused}\n",
            "b/b_tests.rs": "use crate::a::A;",
        },
    )
    arrows.pop("b::b_tests", None)
    assert arrows["b"] == set()


def test_a_module_that_is_used_by_its_name_leads_to_what_is_taken_of_it(tmp_path: Path):
    arrows = crate(
        tmp_path,
        {
            "lib.rs": "mod a; mod b; mod room;",
            "a.rs": "use crate::room; fn f() { room::call(room::Leaf) }",
            "b.rs": "",
            "room.rs": "mod leaf; pub use leaf::*; pub fn call(_: Leaf) {}",
            "room/leaf.rs": "pub struct Leaf;",
        },
    )
    assert arrows["a"] == {"room", "room::leaf"}


def test_the_project_has_no_circle_that_is_not_explained():
    assert circles.check() == []
