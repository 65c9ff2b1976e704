"""The files of Prometheus: what it scrapes and, where parts speak TLS, how it asks them and whom it lets in."""

import json
from pathlib import Path
from typing import Any

from weir.cli.installation import Installation
from weir.tls import parts


def config(installation: Installation) -> str:
    """The API tells Prometheus what to scrape, so that a compute is scraped as soon as it runs. Rules are in
    `rules.yml` beside it (`weir.computes.recorded`). Both are in a folder of root's: in Prometheus's own one, root
    would write to whatever Prometheus had put there."""
    interval = f"{installation.scrape_interval_seconds}s"
    itself: dict[str, Any] = {}
    if installation.has_tls:
        itself = {"scheme": "https", "tls_config": asking(installation, "prometheus")}
    document = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "15s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "weir",
                "authorization": {"credentials_file": str(installation.token_file("prometheus"))},
                **({"tls_config": asking(installation)} if installation.has_tls else {}),
                "http_sd_configs": [
                    {
                        "url": f"{installation.api_url}/internal/prometheus/targets",
                        "refresh_interval": "3s",
                        # Debian's Prometheus has no type of its own here, as it has for scrapes.
                        "authorization": {
                            "type": "Bearer",
                            "credentials_file": str(installation.token_file("prometheus")),
                        },
                    }
                ],
            },
            {
                "job_name": "prometheus",
                "scrape_interval": "15s",
                "static_configs": [{"targets": [installation.address("prometheus")]}],
                **itself,
            },
            {
                "job_name": "temporal",
                "scrape_interval": "5s",
                "scrape_timeout": "5s",
                "static_configs": [{"targets": [installation.address("temporal_metrics")]}],
            },
        ],
    }
    return json.dumps(document, indent=2)


def asking(installation: Installation, part: str = parts.ANY_PORT) -> dict[str, str]:
    """The `tls_config` of a job. Prometheus can be told one name for all targets of a job."""
    file = str(parts.service_file(installation.home, "prometheus"))
    return {
        "ca_file": str(parts.authorities_file(installation.home)),
        "cert_file": file,
        "key_file": file,
        "server_name": part,
        "min_version": "TLS13",
    }


def web_file(installation: Installation) -> Path:
    """In a folder of root's, as `prometheus.yml` is."""
    return installation.run_dir / "prometheus_web.yml"


def web_config(installation: Installation) -> str:
    """Prometheus answers who has a certificate of the CA for parts, whatever part that is: Debian's has no list of
    names. It reads the files again at each handshake."""
    file = str(parts.service_file(installation.home, "prometheus"))
    server = {
        "cert_file": file,
        "key_file": file,
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(parts.authorities_file(installation.home)),
        "min_version": "TLS13",
    }
    return json.dumps({"tls_server_config": server}, indent=2)
