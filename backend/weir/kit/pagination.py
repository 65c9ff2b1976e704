"""Cursor pagination: an opaque cursor that names the last row seen, so that pages never skip or repeat."""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Query
from sqlalchemy import ColumnElement, Select, Uuid, literal, tuple_

from weir.errors import BadRequestError
from weir.kit.schemas import MOST_BIGINT, MOST_INTEGER, View

T = TypeVar("T")
S = TypeVar("S", bound="Select[*tuple[Any, ...]]")


Kind = Callable[[Any], Any]


def text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(value)
    value.encode()
    return value


def small(value: Any) -> int:
    """What a column of 32 bits can be compared with."""
    if not isinstance(value, int) or not 0 <= value <= MOST_INTEGER:
        raise ValueError(value)
    return value


def big(value: Any) -> int:
    """A row's number, which is written as text."""
    number = int(text(value))
    if not 0 <= number <= MOST_BIGINT:
        raise ValueError(value)
    return number


def moment(value: Any) -> datetime:
    found = datetime.fromisoformat(text(value))
    if found.tzinfo is None:
        raise ValueError(value)
    return found


def uuid(value: Any) -> UUID:
    return UUID(text(value))


class Pagination(View):
    """`cursor` goes into the next call; absent on the last page."""

    cursor: str | None = None


@dataclass(frozen=True)
class PageRequest:
    cursor: str | None
    limit: int

    def after(self, *kinds: Kind) -> tuple[Any, ...] | None:
        """The key of the last row seen, after which the page starts; None for the first page. A cursor that does not
        hold a value of each kind is not one this list gave out."""
        if not self.cursor:
            return None
        try:
            return tuple(kind(part) for kind, part in zip(kinds, _parts(self.cursor), strict=True))
        except (ValueError, TypeError, RecursionError, binascii.Error) as error:
            raise BadRequestError(
                f"cursor {self.cursor!r} is not one this API gave out; start again without it"
            ) from error

    def apply(
        self,
        statement: S,
        created_at: ColumnElement[Any],
        ident: ColumnElement[Any],
        *,
        ascending: bool = False,
    ) -> S:
        """Newest first by default; one row more than asked for tells whether another page follows."""
        key = self.after(moment, uuid if isinstance(ident.type, Uuid) else text)
        if key is not None:
            seen = tuple_(literal(key[0], created_at.type), literal(key[1], ident.type))
            here = tuple_(created_at, ident)
            statement = statement.where(here > seen if ascending else here < seen)
        order = (created_at.asc(), ident.asc()) if ascending else (created_at.desc(), ident.desc())
        return statement.order_by(*order).limit(self.limit + 1)

    def split(self, rows: list[T]) -> tuple[list[T], Pagination]:
        page = rows[: self.limit]
        if len(rows) <= self.limit:
            return page, Pagination()
        last: Any = page[-1]
        return page, Pagination(cursor=self.cursor_after(last.created_at, last.id))

    @staticmethod
    def cursor_after(created_at: datetime, ident: object) -> str:
        text = json.dumps([created_at.isoformat(), str(ident)])
        return base64.urlsafe_b64encode(text.encode()).decode()


def _parts(cursor: str) -> list[Any]:
    parts = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    if not isinstance(parts, list):
        raise TypeError(parts)
    return parts


def encode_cursor(*key: str | int) -> str:
    """A cursor for pages that are not ordered by time: the key of the last row shown."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


async def _page(
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=400)] = 100,
) -> PageRequest:
    return PageRequest(cursor, limit)


Page = Annotated[PageRequest, Depends(_page)]
