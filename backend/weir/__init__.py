"""The Weir control plane: the public API, what people asked for, and who they are."""
