"""The declarative base and the columns most tables share."""

from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

from sqlalchemy import DateTime, MetaData, func
from sqlalchemy import Enum as EnumColumn
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from weir.kit.clock import now


def _values(enum: type[Enum]) -> list[str]:
    return [str(member.value) for member in enum]


# Stored as text under their values: adding one is no migration, and SQL by hand reads as the API does.
_ENUM = EnumColumn(StrEnum, native_enum=False, length=32, values_callable=_values)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: DateTime(timezone=True), dict[str, Any]: JSONB, StrEnum: _ENUM}  # noqa: RUF012


class Timestamps:
    # Set here and not by the server: a value the server makes would have to be read back before it is shown.
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now(), onupdate=now)
