"""Grafana's dashboards of Weir, as code: `python -m boards` in docker/grafana writes dashboards/*.json."""
