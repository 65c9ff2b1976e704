"""Every table, so that migrations and tests see all of them."""

from weir.branches.members import TimelineMember
from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, DroppedName, Role
from weir.endpoints.models import Endpoint
from weir.identity.models import Account, ApiKey, AuditEntry, AuditPending, AuditSeal, ConsoleSession
from weir.kit.models import Base
from weir.oidc.models import ProviderSession, UsedOnce
from weir.operations.models import Operation, OperationLock
from weir.people.models import Invitation, Membership, RecoveryCode, SignInAttempts, User, UserIdentity
from weir.projects.models import Project
from weir.quotas.models import Quota, StorageUse
from weir.rollouts.evidence.models import RolloutMeasurement
from weir.rollouts.models import (
    Rollout,
    RolloutAlert,
    RolloutEvidence,
    RolloutExclusion,
    RolloutMember,
    RolloutWave,
)
from weir.snapshots.models import BackupScheduleItem, Snapshot
from weir.transfers.models import TransferRequest
from weir.usage.models import BranchUsagePeriod, EndpointMeter, StorageMeter, TimelineMeter, UsagePeriod

__all__ = [
    "Account",
    "ApiKey",
    "AuditEntry",
    "AuditPending",
    "AuditSeal",
    "BackupScheduleItem",
    "Base",
    "Branch",
    "BranchDatabase",
    "BranchUsagePeriod",
    "ConsoleSession",
    "DroppedName",
    "Endpoint",
    "EndpointMeter",
    "Invitation",
    "Membership",
    "Operation",
    "OperationLock",
    "Project",
    "ProviderSession",
    "Quota",
    "RecoveryCode",
    "Role",
    "Rollout",
    "RolloutAlert",
    "RolloutEvidence",
    "RolloutExclusion",
    "RolloutMeasurement",
    "RolloutMember",
    "RolloutWave",
    "SignInAttempts",
    "Snapshot",
    "StorageMeter",
    "StorageUse",
    "TimelineMember",
    "TimelineMeter",
    "TransferRequest",
    "UsagePeriod",
    "UsedOnce",
    "User",
    "UserIdentity",
]
