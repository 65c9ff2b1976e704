"""What the control plane and `weir-proxy` say to each other, and the addresses that clients are given."""
