"""What the demo, the benchmarks and the system tests share: the workload, its figures, and the API's client."""
