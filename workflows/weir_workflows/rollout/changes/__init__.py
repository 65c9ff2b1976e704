"""What rollouts change in computes, a module for each feature. Waves, batches and verdicts are the same for all
features."""

from weir_workflows.common.resources import Resources
from weir_workflows.rollout.changes.image_pushdown import ImagePushdown
from weir_workflows.rollout.changes.postgres_minor import PostgresMinor
from weir_workflows.rollout.changes.protocol import Change
from weir_workflows.rollout.probes import Probes

__all__ = ["Change", "Changes"]


class Changes:
    """The change of each feature, in one process."""

    def __init__(self, resources: Resources, probes: Probes) -> None:
        self._by_feature: dict[str, Change] = {
            change.feature: change for change in (ImagePushdown(resources, probes), PostgresMinor(resources, probes))
        }

    def of(self, feature: str) -> Change:
        return self._by_feature[feature]

    def all(self) -> list[Change]:
        return list(self._by_feature.values())
