"""`Sampler`: draw networks from the posterior of a module."""
