"""One package that somebody else wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Use(StrEnum):
    """What a package is there for."""

    RUN = "run"  # it is part of what people run
    BUILD = "build"  # it makes, tests or documents that


@dataclass(frozen=True)
class Part:
    """One version of one package, from one registry."""

    # The type of its package URL (https://github.com/package-url/purl-spec): cargo, pypi, npm, golang, deb, generic.
    kind: str
    name: str
    version: str
    use: Use
    # An SPDX expression, as the package states it; empty where the package states none.
    licence: str = ""
    # SHA-256 or SHA-512 of the package's archives, in hexadecimal, as the lock file has them.
    hashes: frozenset[str] = field(default_factory=frozenset[str])
    # Which of Weir's own parts use it.
    used_by: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.name, self.version


def merged(parts: list[Part]) -> list[Part]:
    """Each package once, in order, with the uses of all its mentions: what runs anywhere counts as what runs."""
    found: dict[tuple[str, str, str], Part] = {}
    for part in parts:
        known = found.get(part.key)
        if known is None:
            found[part.key] = part
            continue
        found[part.key] = Part(
            *part.key,
            use=Use.RUN if Use.RUN in (part.use, known.use) else Use.BUILD,
            licence=known.licence or part.licence,
            hashes=known.hashes | part.hashes,
            used_by=known.used_by | part.used_by,
        )
    return [found[key] for key in sorted(found)]
