"""Predictions of modules."""
