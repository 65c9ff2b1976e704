from datetime import datetime

from weir.databases.models import BranchDatabase, Role
from weir.kit.schemas import Body, SqlName, View
from weir.operations.schemas import OperationsResponse


class RoleView(View):
    """`password` is present only in the answer that made it."""

    branch_id: str
    name: str
    password: str | None = None
    protected: bool = False
    authentication_method: str = "password"
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Role, password: str | None = None) -> "RoleView":
        return cls(
            branch_id=row.branch_id,
            name=row.name,
            password=password,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


class RoleCreate(Body):
    name: SqlName
    no_login: bool = False


class RoleCreateRequest(Body):
    role: RoleCreate


class RoleResponse(View):
    role: RoleView


class RolesResponse(View):
    roles: list[RoleView]


class RoleOperations(RoleResponse, OperationsResponse):
    pass


class RolePasswordResponse(View):
    password: str


class DatabaseView(View):
    id: int
    branch_id: str
    name: str
    owner_name: str
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: BranchDatabase) -> "DatabaseView":
        return cls.model_validate(row)


class DatabaseCreate(Body):
    name: SqlName
    owner_name: SqlName


class DatabaseCreateRequest(Body):
    database: DatabaseCreate


class DatabaseUpdate(Body):
    name: SqlName | None = None
    owner_name: SqlName | None = None


class DatabaseUpdateRequest(Body):
    database: DatabaseUpdate


class DatabaseResponse(View):
    database: DatabaseView


class DatabasesResponse(View):
    databases: list[DatabaseView]


class DatabaseOperations(DatabaseResponse, OperationsResponse):
    pass


class ConnectionParameters(View):
    database: str
    password: str
    role: str
    host: str
    port: int
    pooler_host: str


class ConnectionDetails(View):
    connection_uri: str
    connection_parameters: ConnectionParameters


class ConnectionUriResponse(View):
    uri: str


class BranchSchema(View):
    """`sql` is what pg_dump makes of the database without its rows."""

    sql: str


class BranchSchemaComparison(View):
    """A unified diff; empty where the two are the same."""

    diff: str
