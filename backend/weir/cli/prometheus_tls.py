"""Where parts speak TLS: how Prometheus asks them, and whom it lets in at its own port."""

import json
from pathlib import Path

from weir.cli.installation import Installation
from weir.tls import parts


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
