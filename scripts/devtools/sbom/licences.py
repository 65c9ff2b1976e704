"""Which licences Weir may be made of."""

from __future__ import annotations

from collections.abc import Mapping

from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing

from .part import Part, Use

# May be part of what people run, beside Apache-2.0 and without a duty to hand on sources.
ALLOWED = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CDLA-Permissive-2.0", "HPND",
        "ISC", "MIT", "MIT-0", "NCSA", "OFL-1.1", "PSF-2.0", "PostgreSQL", "Python-2.0", "Unicode-3.0", "Unlicense",
        "Zlib", "bzip2-1.0.6",
    }
)  # fmt: skip
# Changes to such a file are under its own licence; Weir changes none.
FILEWISE = frozenset({"MPL-2.0"})
# Packages that may run under a licence that is not allowed in general, and why.
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("pypi", "psycopg"): "LGPL-3.0: imported as a library of its own, which whoever runs Weir can replace",
    ("pypi", "psycopg-binary"): "as psycopg",
    ("pypi", "psycopg-pool"): "as psycopg",
}


def problem(part: Part) -> str | None:
    """Why the package must not be part of what people run; `None` if it may, or is not."""
    # A Go program says what it is linked from, and not under which licences.
    if part.use is Use.BUILD or part.kind == "golang" or (part.kind, part.name) in EXCEPTIONS:
        return None
    if not part.licence:
        return f"{part.kind} {part.name} {part.version} states no licence that is clear"
    try:
        expression = get_spdx_licensing().parse(part.licence, validate=True)
    except ExpressionError:
        return f"{part.kind} {part.name} {part.version} states {part.licence!r}, which is no SPDX expression"
    if expression is None or not _may(expression):
        return f"{part.kind} {part.name} {part.version} is under {part.licence}, which is not allowed"
    return None


def _may(expression: LicenseExpression) -> bool:
    """One alternative of an OR is enough, an AND needs all; an exception (WITH) only ever permits more."""
    operator = getattr(expression, "operator", "")
    if operator.strip() == "OR":
        return any(_may(one) for one in expression.args)
    if operator.strip() == "AND":
        return all(_may(one) for one in expression.args)
    licence = getattr(expression, "license_symbol", expression)
    return getattr(licence, "key", "") in ALLOWED | FILEWISE
