"""The parts as a document of CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

# The decorators of cyclonedx-python-lib hide the fields of its classes from type checkers.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from .part import Part, Use

ALGORITHMS = {64: HashAlgorithm.SHA_256, 128: HashAlgorithm.SHA_512}
# Makes the serial number of what it names: two documents of one commit are the same document.
SERIALS = uuid.UUID("5d0a4c0e-6f0a-4b1e-9a52-77656972736f")


def document(parts: Iterable[Part], commit: str, made: datetime, name: str = "weir") -> str:
    """JSON of what `name` is made of. `made` is when the commit was made. Fails when the document does not fit
    CycloneDX's schema."""
    weir = Component(name=name, version=commit, type=ComponentType.PLATFORM, bom_ref="weir")
    serial = commit if name == "weir" else f"{commit} {name}"
    bom = Bom(components=[_component(part) for part in parts], serial_number=uuid.uuid5(SERIALS, serial))
    bom.metadata.component = weir
    bom.metadata.timestamp = made
    bom.register_dependency(weir, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    invalid = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if invalid is not None:
        raise ValueError(f"the document does not fit CycloneDX 1.6: {invalid}")
    return text + "\n"


def _component(part: Part) -> Component:
    namespace, _, name = part.name.rpartition("/")
    url = PackageURL(part.kind, namespace or None, name, part.version)
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.APPLICATION if part.kind == "generic" else ComponentType.LIBRARY,
        scope=ComponentScope.REQUIRED if part.use is Use.RUN else ComponentScope.EXCLUDED,
        purl=url,
        bom_ref=url.to_string(),
        licenses=[LicenseFactory().make_from_string(part.licence)] if part.licence else [],
        hashes=[HashType(alg=ALGORITHMS[len(one)], content=one) for one in sorted(part.hashes)],
        properties=[Property(name="weir:used-by", value=room) for room in sorted(part.used_by)],
    )
