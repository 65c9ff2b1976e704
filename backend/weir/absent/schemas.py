from typing import Any

from weir.kit.schemas import View


class Buckets(View):
    buckets: list[dict[str, Any]]


class Functions(View):
    functions: list[dict[str, Any]]


class Triggers(View):
    triggers: list[dict[str, Any]]


class Credentials(View):
    credentials: list[dict[str, Any]]


class VpcEndpoints(View):
    endpoints: list[dict[str, Any]]
