"""The features that can be rolled out, and what a plan asks of each feature."""

from weir.rollouts.features.image_pushdown import ImagePushdown
from weir.rollouts.features.postgres_minor import PostgresMinor
from weir.rollouts.features.protocol import Candidate, Feature

__all__ = ["Candidate", "Feature", "feature_of"]

_FEATURES: dict[str, Feature] = {feature.name: feature for feature in (ImagePushdown(), PostgresMinor())}


def feature_of(name: str) -> Feature:
    return _FEATURES[name]
