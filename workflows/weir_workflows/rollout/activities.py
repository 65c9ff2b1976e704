"""All activities of rollouts, with what they share in one process."""

from collections.abc import Callable
from typing import Any

from weir_workflows.common.resources import Resources
from weir_workflows.rollout.bake_activities import BakeActivities
from weir_workflows.rollout.judge_activities import WaveActivities
from weir_workflows.rollout.pick_activities import PickActivities
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.progress_activities import ProgressActivities
from weir_workflows.rollout.report_activities import ReportActivities
from weir_workflows.rollout.rollback_activities import Rollback, RollbackActivities
from weir_workflows.rollout.scope_activities import ScopeActivities
from weir_workflows.rollout.switch_activities import SwitchActivities


def rollout_activities(resources: Resources) -> list[Callable[..., Any]]:
    probes = Probes(resources)
    rollback = Rollback(resources, probes)
    return [
        *ProgressActivities(resources).all(),
        *PickActivities(resources).all(),
        *ReportActivities(resources).all(),
        *ScopeActivities(resources).all(),
        *SwitchActivities(resources, probes, rollback).all(),
        *BakeActivities(resources, probes, rollback).all(),
        *RollbackActivities(resources, rollback).all(),
        *WaveActivities(resources).all(),
    ]
