import sys
from pathlib import Path

DOCKER = Path(__file__).resolve().parents[1]
for folder in ("images", "grafana", "tests"):
    sys.path.insert(0, str(DOCKER / folder))
sys.path.insert(0, str(DOCKER.parent / "scripts"))
