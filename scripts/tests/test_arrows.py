"""An import against an arrow is found, and one along it is not."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import arrows


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("weir.authz.access", "from weir.rollouts.models import Rollout"),
        ("weir.operations.dispatcher", "import weir.rollouts.models"),
        ("weir.identity.repository", "from weir import rollouts"),
        ("weir.rollouts.plan.planner", "from weir.rollouts.run import views"),
        ("weir.rollouts.control.delivery", "from weir.rollouts.evidence.store import kept_series"),
        ("weir.rollouts.run.views", "def late():\n    from weir.rollouts.report.content import make"),
        ("weir_workflows.computes.steps", "from weir_workflows.rollout import members"),
        ("weir.endpoints.service", "from weir_workflows.worker import main"),
        ("weir.cli.resources.api", "from weir.cli.resources import names"),
        ("weir.cli.resources.names", "from weir.db import Session"),
        ("weir.cli.up", "from weir.cli.resources.api import Api"),
    ],
)
def test_an_import_against_an_arrow_is_found(module: str, line: str) -> None:
    assert len(list(arrows.breaches(module, line))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("weir.main", "from weir.rollouts import assembly"),
        ("weir.rollouts.run.views", "from weir.rollouts.plan.schemas import PlanSummary"),
        ("weir.rollouts.plan.planner", "from weir.endpoints.models import EndpointState"),
        ("weir_workflows.reconciler.rollouts", "from weir_workflows.rollout import members"),
        ("weir.cli.resources.target", "from weir.cli import installation"),
        ("weir.cli.main", "from weir.cli.resources.commands import COMMANDS"),
    ],
)
def test_an_import_along_an_arrow_is_not(module: str, line: str) -> None:
    assert not list(arrows.breaches(module, line))


def test_the_packages_keep_to_the_arrows() -> None:
    assert arrows.check() == []
