"""All commands of this room, for the program that has them."""

import click

from weir.cli.resources.branches import branches
from weir.cli.resources.complete import completion
from weir.cli.resources.computes import computes
from weir.cli.resources.connect import ca_certificate, connection_string, psql
from weir.cli.resources.databases import databases, roles
from weir.cli.resources.operations import operations
from weir.cli.resources.organizations import api_keys, invitations, members, organizations
from weir.cli.resources.projects import projects
from weir.cli.resources.quotas import quotas
from weir.cli.resources.rollouts import rollouts
from weir.cli.resources.snapshots import snapshots
from weir.cli.resources.usage import usage

COMMANDS: tuple[click.Command, ...] = (
    projects,
    branches,
    snapshots,
    computes,
    roles,
    databases,
    operations,
    rollouts,
    quotas,
    usage,
    organizations,
    members,
    invitations,
    api_keys,
    connection_string,
    ca_certificate,
    psql,
    completion,
)
