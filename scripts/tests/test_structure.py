"""What `devtools.structure` says of a small tree is what is in it."""

from __future__ import annotations

from pathlib import Path

from devtools import structure

FILES = {
    "backend/weir/__init__.py": "",
    "backend/weir/branches/__init__.py": "",
    "backend/weir/branches/models.py": "from weir.kit import clock\nclass Branch:\n    expires_at = clock\n",
    "backend/weir/identity/models.py": "class Session:\n    expires_at = 1\n",
    "backend/weir/kit/clock.py": "def now():\n    import weir.branches.models\n    import os\n",
    "backend/weir/migrations/versions/0001_first.py": '"""The branches."""\nfield = "expires_at"\n',
    "backend/tests/test_branches.py": "# branch expires_at\n",
    "workflows/weir_workflows/worker.py": "from weir.branches import models\n",
    "frontend/src/features/branches/List.tsx": "import { can } from '~/features/session/can'\n",
    "frontend/src/features/session/can.ts": "export const can = 1\n",
    "frontend/src/features/session/can.test.ts": "import { List } from '../branches/List'\n",
    "frontend/src/features/branches/queries.ts": "import { can } from '../session/can'\nconst branch = expires_at\n",
    "storage/crates/low/Cargo.toml": '[dependencies]\nserde = "1"\n',
    "storage/crates/low/src/lib.rs": "mod a;\nmod b;\n",
    "storage/crates/low/src/a.rs": "use crate::b::B;\npub struct A;\n",
    "storage/crates/low/src/b.rs": "use crate::a::A;\npub struct B;\npub fn long() {\n    a();\n    b();\n}\n",
    "storage/crates/high/Cargo.toml": "[dependencies]\nlow.workspace = true\n[dev-dependencies]\nhigh.path = '.'\n",
    "storage/crates/high/src/lib.rs": "",
}


def measured(root: Path) -> structure.Structure:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return structure.measure(root, "expires_at")


def test_rooms_of_each_half_count_who_uses_them_and_whom_they_use(tmp_path: Path):
    found = measured(tmp_path)
    assert found.arrows == {
        "weir.branches": {"weir.kit"},
        "weir.identity": set(),
        "weir.kit": {"weir.branches"},
        "weir_workflows.worker": {"weir.branches"},
        "console.branches": {"console.session"},
        "console.session": set(),
        "engine.low": set(),
        "engine.high": {"engine.low"},
    }
    assert (found.fan_in("weir.branches"), found.fan_out("weir.branches")) == (2, 1)


def test_circles_are_found_between_rooms_and_in_a_crate(tmp_path: Path):
    assert measured(tmp_path).circles == ["weir.branches, weir.kit", "engine.low: a, b"]


def test_the_longest_come_first(tmp_path: Path):
    found = measured(tmp_path)
    assert found.functions[0] == ("storage/crates/low/src/b.rs long", 4)
    assert found.files[0] == ("storage/crates/low/src/b.rs", 6)


def test_a_field_of_a_branch_is_followed_from_migration_to_console(tmp_path: Path):
    """Another table's field of the same name, and tests, are none of its places."""
    places = {step: names for step, names in measured(tmp_path).field.items() if names}
    assert places == {
        "migration": ["backend/weir/migrations/versions/0001_first.py"],
        "API": ["backend/weir/branches/models.py"],
        "console": ["frontend/src/features/branches/queries.ts"],
    }


def test_trees_stand_side_by_side_and_a_room_of_one_alone_is_marked(tmp_path: Path):
    whole = measured(tmp_path)
    without = structure.Structure({"weir.kit": set()}, [], [], [], {})
    lines = list(structure.report({"old": without, "new": whole}, "expires_at"))
    assert "| `weir.kit` | 0 / 0 | 1 / 1 |" in lines
    assert "| `engine.high` | none | 0 / 1 |" in lines
    assert "| circles | 0 | 2 |" in lines
    assert "- 4 lines: storage/crates/low/src/b.rs long" in lines


def test_a_commits_tree_is_there_while_it_is_measured():
    with structure.tree_of("HEAD") as root:
        assert (root / "scripts" / "devtools" / "tidy.py").is_file()
    assert not root.exists()
