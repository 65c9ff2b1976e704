"""Where computes run. `local`: processes of this machine. `simulated`: a model, for scale tests."""
