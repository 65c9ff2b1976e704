"""Figures over all computes, storage health and service discovery."""
