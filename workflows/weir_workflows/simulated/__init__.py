"""The simulated fleet: computes and storage that behave by a model, behind the HTTP APIs of the real ones.

For scale tests of the control plane. No Postgres runs and no byte is stored; what is measured on it is the control
plane's own work, never a database's (docs/adr/0013).
"""
