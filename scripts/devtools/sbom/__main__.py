"""`python -m devtools.sbom`: writes the bill of materials, and says which licences do not fit."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from devtools.paths import BIN, E2E, FRONTEND, IDENTITY_PROVIDER, PG_BIN, REPO, STORAGE
from devtools.run import StepError, say
from devtools.sbom import crates, licences, npm, programs, python, revision

from .document import document
from .part import Part, Use, merged


def collect() -> list[Part]:
    """Every part, from the lock files of this checkout and from the programs that set-up built."""
    return merged(
        [
            *crates.parts(STORAGE),
            *python.parts(REPO),
            *npm.parts(FRONTEND, "console", ships=True),
            *npm.parts(E2E, "journeys", ships=False),
            *npm.parts(IDENTITY_PROVIDER, "tests of signing in", ships=False),
            *programs.parts(BIN, PG_BIN),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make sbom",
        description="Write what others wrote and Weir is made of, as CycloneDX 1.6. "
        "Exits with 1 when a package that people would run is under a licence that is not allowed.",
    )
    parser.add_argument("--out", type=Path, default=REPO / "sbom.cdx.json", help="where to (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        parts = collect()
    except (StepError, FileNotFoundError) as problem:
        sys.stderr.write(f"no bill of materials: {problem}\n")
        return 2
    arguments.out.write_text(document(parts, *revision.of(REPO)))
    counts = Counter(part.kind for part in parts)
    runs = sum(part.use is Use.RUN for part in parts)
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(counts.items()))
    say(f"{arguments.out}: {len(parts)} packages ({kinds}); people run {runs}, the others build and test")
    problems = [reason for part in parts if (reason := licences.problem(part))]
    for reason in problems:
        say(f"NOT ALLOWED: {reason}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
