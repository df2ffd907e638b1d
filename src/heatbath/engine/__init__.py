"""The engine: ensembles of dense networks, compiled with Numba."""
