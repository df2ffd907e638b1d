"""Optimisers for PyTorch modules: their classes, and what a step of them is made of."""
