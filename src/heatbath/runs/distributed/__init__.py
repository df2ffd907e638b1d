"""Blocks of chains, computed by other threads, processes or machines."""
