"""What Prometheus is answered: the metrics of this process, or of all that share a port with it.

Where the API has several processes, each scrape reaches one of them, by chance. `prometheus_client` then keeps each
process's metrics in files of the folder that `FOLDER` names, which has to be there before the first metric is made,
and empty; whichever process is asked adds them up. Counters and histograms of a process that ended stay in the sum.
Figures of the process itself (`process_*`, `python_*`) are those of one process only, and left out then.
"""

import os

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# Of the environment; `prometheus_client` reads it by this name.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def exposition() -> bytes:
    if FOLDER not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return generate_latest(registry)
