"""Analyse losses and trajectories."""
