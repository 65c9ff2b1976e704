"""The documentation's site finds what is dead in it, holds what it links to, and fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools.paths import REPO

MKDOCS = Path(sys.executable).with_name("mkdocs")
CONFIG = """
site_name: Small
docs_dir: docs
strict: true
theme: {name: material, font: false}
hooks: [HOOKS]
validation: {links: {anchors: warn}}
markdown_extensions: [{toc: {slugify: SLUGIFY}}]
nav: [{Home: README.md}, {Pages: docs/}]
"""


def _build(root: Path, home: str) -> subprocess.CompletedProcess[str]:
    """Builds a site of a front page that says `home`, a page below `docs`, and a source file."""
    (root / "docs").mkdir()
    (root / "src").mkdir()
    slugify = re.search(r"slugify: (.*)", (REPO / "mkdocs.yml").read_text())
    assert slugify, "mkdocs.yml says how anchors are made"
    config = CONFIG.replace("HOOKS", str(REPO / "scripts/devtools/docs_site.py")).replace("SLUGIFY", slugify[1])
    (root / "mkdocs.yml").write_text(config)
    (root / "README.md").write_text(f"# Home\n\n{home}\n")
    (root / "docs/page.md").write_text("# Page\n\n[home](../README.md), [source](../src/lib.rs)\n\n## A & b\n")
    (root / "src/lib.rs").write_text("fn shown() {}\n")
    command = [MKDOCS, "build", "--config-file", root / "mkdocs.yml", "--site-dir", root / "site"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_links_between_folders_and_to_source_files_hold(tmp_path: Path):
    built = _build(tmp_path, "[page](docs/page.md), [part](docs/page.md#a--b), [source](src/lib.rs)")
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site/docs/page/index.html").read_text()
    assert 'href="../../src/lib.rs/"' in page
    assert "shown" in (tmp_path / "site/src/lib.rs/index.html").read_text()
    assert 'href="docs/page/#a--b"' in (tmp_path / "site/index.html").read_text()


@pytest.mark.parametrize("dead", ["docs/gone.md", "docs/page.md#gone", "src/gone.rs", "#gone"])
def test_a_dead_link_fails_the_build_and_is_named(tmp_path: Path, dead: str):
    built = _build(tmp_path, f"[dead]({dead})")
    assert built.returncode != 0
    assert dead.rpartition("/")[2] in built.stderr


def test_a_page_fetches_nothing_from_elsewhere(tmp_path: Path):
    assert _build(tmp_path, "[page](docs/page.md)").returncode == 0
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?:[^\"> ]+)", page.read_text())
        assert not fetched, page
