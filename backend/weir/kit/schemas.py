"""What request and response bodies have in common."""

from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from weir.kit.ids import ID_PATTERN, format_lsn, parse_lsn


class Body(BaseModel):
    """A request body. Fields that Weir does not know are ignored, as clients written against a later
    version of the API send them; fields it knows and cannot honour are refused by the services.

    An empty text in a field that may be left out is a field left out: clients whose language has no absent text, such
    as the community Terraform provider, send one for each field that nobody has set."""

    model_config = ConfigDict(extra="ignore", str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_left_out(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {
            name for name, field in cls.model_fields.items() if not field.is_required() and field.default is None
        }
        return {key: value for key, value in data.items() if value != "" or key not in optional}


class View(BaseModel):
    """A response body."""

    model_config = ConfigDict(from_attributes=True)


# The largest that columns of Postgres's types `integer` and `bigint` hold and can be compared with.
MOST_INTEGER, MOST_BIGINT = 2**31 - 1, 2**63 - 1
Integer = Annotated[int, Field(ge=-MOST_INTEGER - 1, le=MOST_INTEGER)]
# For how many seconds clients do nothing before a compute is suspended. 0 and -1: it is not suspended by itself.
SuspendTimeout = Annotated[int, Field(ge=-1, le=604_800)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
PathId = Annotated[str, Path(pattern=ID_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
# Regions, cells, names of tags.
Label = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")]
TagValue = Annotated[str, StringConstraints(max_length=256)]
# What Postgres accepts as an identifier, minus what it reserves.
SqlName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[^\x00\"]+$")]
Timestamp = AwareDatetime


def _normal_lsn(text: str) -> str:
    return format_lsn(parse_lsn(text))


Lsn = Annotated[str, AfterValidator(_normal_lsn)]
