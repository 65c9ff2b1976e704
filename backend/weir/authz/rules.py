"""Who may use which operation of the API: the only list of it.

The name of an operation is that of its function, as in the OpenAPI document. `weir.authz.principal.guard` asks this
list before every operation below /api/v2 and refuses one that is not in it.
"""

from dataclasses import dataclass
from enum import Enum

from weir.people.roles import Role


class Reach(Enum):
    """How far an operation reaches, and so for which callers and keys it is."""

    # For anybody: what proves who somebody is, and ends that.
    OPEN = "open"
    # Of the caller alone, or the same for everybody: for any caller, with any key, in an organisation or in none.
    SELF = "self"
    # Of a person alone, who came in by signing in: no API key is for it, and no session of one.
    PERSON = "person"
    # Of the project that the path names; of a list of projects, those that the key is for.
    PROJECT = "project"
    # Of all of an organisation: not for a key of one project.
    ORGANIZATION = "organization"
    # Of the installation: for organisations of operators.
    INSTALLATION = "installation"


@dataclass(frozen=True)
class Rule:
    """`least`: the role in the organisation; None where no role is asked for."""

    reach: Reach
    least: Role | None = None


_OPEN, _SELF, _PERSON = Rule(Reach.OPEN), Rule(Reach.SELF), Rule(Reach.PERSON)
_READS = Rule(Reach.PROJECT, Role.VIEWER)
_WORKS = Rule(Reach.PROJECT, Role.MEMBER)
_DECIDES = Rule(Reach.PROJECT, Role.ADMIN)
_READS_ALL = Rule(Reach.ORGANIZATION, Role.VIEWER)
_WORKS_IN_ALL = Rule(Reach.ORGANIZATION, Role.MEMBER)
_DECIDES_ON_ALL = Rule(Reach.ORGANIZATION, Role.ADMIN)
_RUNS = Rule(Reach.INSTALLATION, Role.ADMIN)

RULES: dict[str, Rule] = {
    # Signing in, and what is of the caller.
    "create_session": _OPEN,
    "delete_session": _OPEN,
    "sign_in": _OPEN,
    "list_auth_providers": _OPEN,
    "begin_provider_sign_in": _OPEN,
    "finish_provider_sign_in": _OPEN,
    "end_sessions_by_provider": _OPEN,
    "accept_invitation": _OPEN,
    "end_provider_session": _SELF,
    "get_session": _SELF,
    "list_sessions": _SELF,
    "end_session": _SELF,
    "get_auth_details": _SELF,
    "get_current_user": _SELF,
    "get_current_user_organizations": _SELF,
    "get_active_regions": _SELF,
    "get_certificate_authority": _SELF,
    "choose_organization": _PERSON,
    "leave_organization": _PERSON,
    "change_password": _PERSON,
    "begin_totp": _PERSON,
    "confirm_totp": _PERSON,
    "end_totp": _PERSON,
    "list_provider_links": _PERSON,
    "begin_provider_link": _PERSON,
    "end_provider_link": _PERSON,
    # Organisations, members, keys, the audit log.
    "get_organization": _READS_ALL,
    "create_organization": _RUNS,
    "get_kept_organization": _RUNS,
    "update_organization": _RUNS,
    "delete_organization": _RUNS,
    "list_organization_members": _READS_ALL,
    "get_organization_member": _READS_ALL,
    "add_organization_member": _DECIDES_ON_ALL,
    "update_organization_member": _DECIDES_ON_ALL,
    "remove_organization_member": _DECIDES_ON_ALL,
    "list_organization_invitations": _DECIDES_ON_ALL,
    "create_organization_invitations": _DECIDES_ON_ALL,
    "revoke_organization_invitation": _DECIDES_ON_ALL,
    "list_api_keys": _READS_ALL,
    "create_api_key": _WORKS_IN_ALL,
    "revoke_api_key": _WORKS_IN_ALL,
    "list_audit": _DECIDES_ON_ALL,
    "export_audit": _DECIDES_ON_ALL,
    "get_quotas": _READS_ALL,
    "get_project_quotas": _READS,
    "get_consumption_history_per_account": _READS_ALL,
    "get_consumption_history_per_project": _READS,
    "get_consumption_history_per_project_v2": _READS,
    "get_consumption_history_per_branch_v2": _READS,
    # Projects.
    "list_projects": _READS,
    "list_shared_projects": _READS,
    "create_project": _WORKS_IN_ALL,
    "get_project": _READS,
    "update_project": _DECIDES,
    "delete_project": _DECIDES,
    "list_project_operations": _READS,
    "get_project_operation": _READS,
    "cancel_project_operation": _WORKS,
    "create_project_transfer_request": _DECIDES,
    "delete_project_transfer_requests": _DECIDES,
    # By the organisation that gets the project.
    "accept_project_transfer_request": _WORKS_IN_ALL,
    "transfer_projects_from_org_to_org": _DECIDES_ON_ALL,
    "transfer_projects_from_user_to_org": _PERSON,
    "list_project_permissions": _READS,
    "grant_permission_to_project": _DECIDES,
    "revoke_permission_from_project": _DECIDES,
    "get_project_jwks": _READS,
    "add_project_jwks": _DECIDES,
    "delete_project_jwks": _DECIDES,
    "list_snapshots": _READS,
    "list_project_vpc_endpoints": _READS,
    # Branches.
    "list_project_branches": _READS,
    "create_project_branch": _WORKS,
    "count_project_branches": _READS,
    "get_project_branch": _READS,
    "delete_project_branch": _WORKS,
    "update_project_branch": _WORKS,
    "restore_project_branch": _WORKS,
    "set_default_project_branch": _WORKS,
    "detach_project_branch": _WORKS,
    "get_project_branch_history": _READS,
    "get_project_branch_history_point": _READS,
    "get_project_branch_durability": _READS,
    "get_branch_safekeepers": _READS,
    "set_branch_safekeepers": _DECIDES,
    "list_project_branch_buckets": _READS,
    "list_project_branch_functions": _READS,
    "list_project_branch_triggers": _READS,
    "list_credentials": _READS,
    "create_snapshot": _WORKS,
    "update_snapshot": _WORKS,
    "delete_snapshot": _WORKS,
    "restore_snapshot": _WORKS,
    "finalize_restore_branch": _WORKS,
    "get_snapshot_schedule": _READS,
    "set_snapshot_schedule": _WORKS,
    # Roles and databases of Postgres. What shows a password is not for those who read.
    "list_project_branch_roles": _READS,
    "create_project_branch_role": _WORKS,
    "get_project_branch_role": _READS,
    "delete_project_branch_role": _WORKS,
    "get_project_branch_role_password": _WORKS,
    "reset_project_branch_role_password": _WORKS,
    "list_project_branch_databases": _READS,
    "create_project_branch_database": _WORKS,
    "get_project_branch_database": _READS,
    "update_project_branch_database": _WORKS,
    "delete_project_branch_database": _WORKS,
    "get_connection_uri": _WORKS,
    "get_project_branch_schema": _READS,
    "get_project_branch_schema_comparison": _READS,
    # Endpoints, and the computes of all projects.
    "list_project_endpoints": _READS,
    "create_project_endpoint": _WORKS,
    "list_project_branch_endpoints": _READS,
    "get_project_endpoint": _READS,
    "update_project_endpoint": _WORKS,
    "delete_project_endpoint": _WORKS,
    "start_project_endpoint": _WORKS,
    "suspend_project_endpoint": _WORKS,
    "restart_project_endpoint": _WORKS,
    "list_computes": _READS_ALL,
    "get_compute": _READS_ALL,
    "get_compute_settings": _READS_ALL,
    "get_compute_metrics": _READS_ALL,
    "get_compute_wal_cost": _READS_ALL,
    "get_compute_durability": _READS_ALL,
    # The fleet.
    "get_fleet": _READS_ALL,
    "get_fleet_metrics": _READS_ALL,
    "get_fleet_wal": _READS_ALL,
    "list_fleet_cells": _READS_ALL,
    "list_fleet_organizations": _READS_ALL,
    "get_feature_coverage": _READS_ALL,
    "get_storage_health": _READS_ALL,
    "replace_safekeeper": _RUNS,
    # Rollouts.
    "plan_rollout": _READS_ALL,
    "list_rollout_exclusions": _READS_ALL,
    "diff_rollout_plan": _READS_ALL,
    "create_rollout": _DECIDES_ON_ALL,
    "list_rollouts": _READS_ALL,
    "get_rollout": _READS_ALL,
    "list_rollout_computes": _READS_ALL,
    "get_rollout_compute": _READS_ALL,
    "get_rollout_grid": _READS_ALL,
    "list_rollout_alerts": _READS_ALL,
    "list_rollout_audit": _DECIDES_ON_ALL,
    "pause_rollout": _DECIDES_ON_ALL,
    "resume_rollout": _DECIDES_ON_ALL,
    "approve_rollout": _DECIDES_ON_ALL,
    "skip_in_rollout": _DECIDES_ON_ALL,
    "abort_rollout": _DECIDES_ON_ALL,
    "rollback_rollout": _DECIDES_ON_ALL,
    "get_rollout_evidence": _READS_ALL,
    "get_rollout_compute_evidence": _READS_ALL,
    "get_rollout_compute_course": _READS_ALL,
    "get_rollout_report": _READS_ALL,
}
