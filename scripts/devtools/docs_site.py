"""Hooks of MkDocs: the documentation's site has the layout of the repository.

MkDocs builds one folder. Weir's pages lie in several (`README.md` and others at the top, `docs/`, `bench/`) and link
to each other, and to source files, by relative paths, as a code host shows them. These hooks give every page the
place in the site that its file has in the repository, so that the same link holds in both. A source file that a page
links to becomes a page that shows it. A link to a file that does not exist stays as it is, and the strict build fails
on it. A build with `--quiet` would not: MkDocs then counts no warnings.

MkDocs loads this file by its path, and calls the functions named `on_...`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

# Pages outside of `docs_dir`.
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "docker/README.md",
    "bench/verdict/README.md",
    "terraform/README.md",
)
# Folders of such pages.
FOLDERS = ("terraform/docs",)
# The console's mark is the site's, too.
ASSETS = ("frontend/public/weir.svg",)
MEDIA = {".png", ".svg"}
LANGUAGES = {".rs": "rust", ".py": "python", ".ts": "typescript", ".tsx": "tsx", ".sql": "sql", ".toml": "toml"}

_LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)#\s]+)(?P<after>[^)]*\))")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the navigation, written with a slash at its end, stands for its pages, in order of their names."""
    config.nav = [_expanded(entry, _root(config)) for entry in config.nav or []]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Moves each page to its place in the repository, and adds the pages and files that pages link to."""
    root = _root(config)
    docs = Path(config.docs_dir)
    site = Files([])
    for file in files:
        of_docs = file.abs_src_path is not None and Path(file.abs_src_path).is_relative_to(docs)
        site.append(_file(f"{docs.name}/{file.src_uri}", config) if of_docs else file)
    inside = [str(path.relative_to(root)) for folder in FOLDERS for path in sorted((root / folder).rglob("*.md"))]
    for name in (*PAGES, *inside, *ASSETS):
        if (root / name).is_file():
            site.append(_file(name, config))
    for page in site.documentation_pages():
        text = (root / page.src_uri).read_text()
        for target in _targets(page.src_uri, text):
            shown = _shown(target)
            if (root / target).is_file() and site.get_file_from_path(shown) is None:
                site.append(_file(target, config) if shown == target else _source(root, target, config))
    return site


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to source files at the pages that show them."""
    _ = config

    def rewritten(match: re.Match[str]) -> str:
        target = _resolved(page.file.src_uri, match["path"])
        if target is None or _shown(target) == target or files.get_file_from_path(_shown(target)) is None:
            return match[0]
        return f"{match['before']}{_shown(match['path'])}{match['after']}"

    return _LINK.sub(rewritten, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _expanded(entry: object, root: Path) -> object:
    if isinstance(entry, dict):
        return {title: _expanded(value, root) for title, value in entry.items()}
    if isinstance(entry, list):
        return [_expanded(value, root) for value in entry]
    if isinstance(entry, str) and entry.endswith("/"):
        names = sorted(path.name for path in (root / entry).glob("*.md") if path.name != "README.md")
        front = ["README.md"] if (root / entry / "README.md").is_file() else []
        return [f"{entry}{name}" for name in (*front, *names)]
    return entry


def _file(name: str, config: MkDocsConfig) -> File:
    return File(name, str(_root(config)), config.site_dir, config.use_directory_urls)


def _source(root: Path, name: str, config: MkDocsConfig) -> File:
    """A page that shows the source file `name`."""
    language = LANGUAGES.get(Path(name).suffix, "text")
    text = (root / name).read_text()
    content = f"# {Path(name).name}\n\n`{name}`\n\n~~~~~~{language}\n{text.rstrip()}\n~~~~~~\n"
    return File.generated(config, _shown(name), content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def _shown(name: str) -> str:
    """Where the site shows a file: media and pages as they are, a source file as a page of its name."""
    return name if Path(name).suffix in MEDIA | {".md"} else f"{name}.md"


def _targets(page: str, text: str) -> Iterator[str]:
    for match in _LINK.finditer(_FENCE.sub("", text)):
        target = _resolved(page, match["path"])
        if target is not None and not target.endswith(".md"):
            yield target


def _resolved(page: str, path: str) -> str | None:
    """The place in the repository that a page's relative link leads to; none for an address or a place outside."""
    if re.match(r"[a-z]+:|/", path):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return None if target.startswith("..") else target
