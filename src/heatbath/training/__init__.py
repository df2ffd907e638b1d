"""Train, and find settings automatically."""
