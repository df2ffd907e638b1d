"""The optimisers of `heatbath.torch`."""
