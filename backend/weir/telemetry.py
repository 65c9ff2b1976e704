"""Traces: OTLP over HTTP when OTEL_EXPORTER_OTLP_ENDPOINT is set, nothing otherwise.

SQLAlchemy's instrumentation declares itself incompatible with 2.1 and would silently do nothing, hence
`skip_dep_check`; a test checks that its spans exist.
"""

import os

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from sqlalchemy.ext.asyncio import AsyncEngine


def _wanted() -> bool:
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{what}") for what in ("ENDPOINT", "TRACES_ENDPOINT"))


def configure(service_name: str) -> TracerProvider | None:
    if not _wanted():
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)
    return provider


def instrument_app(app: FastAPI) -> None:
    """Spans that nobody records would cost each request as much as a statement of the database."""
    if not _wanted():
        return
    # Answers of identity providers have a code in their URL.
    FastAPIInstrumentor.instrument_app(app, excluded_urls="healthz,metrics,internal/,auth/oidc/")


def instrument_engine(engine: AsyncEngine) -> None:
    SQLAlchemyInstrumentor().instrument(engine=engine.sync_engine, skip_dep_check=True)
