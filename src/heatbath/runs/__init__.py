"""Runs: plan, grid, simulation, data set, run, file and training: all that a run is."""
