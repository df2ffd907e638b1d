"""`tune` for modules."""
