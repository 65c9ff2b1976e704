"""What the tests of the control plane run against: real Postgres, Temporal and Prometheus, and doubles of the
storage engine, whose own tests are elsewhere."""
