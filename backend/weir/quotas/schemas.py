from datetime import datetime

from weir.kit.schemas import View
from weir.quotas.names import OwnerKind, Per, QuotaName


class QuotaView(View):
    """`per`: of what `limit` is the most; null is no limit. `used`: how much there is, and where it is limited by
    project or branch, how much the fullest of them, `fullest`, has. Storage is measured, about each minute, where
    there is a quota of it: `measured_at` is when, and `used` is null before."""

    name: QuotaName
    per: Per
    limit: int | None
    used: int | None
    fullest: str | None
    measured_at: datetime | None


class QuotaOwner(View):
    kind: OwnerKind
    id: str


class QuotasResponse(View):
    owner: QuotaOwner
    quotas: list[QuotaView]
