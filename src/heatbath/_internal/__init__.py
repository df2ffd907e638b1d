"""Helpers without any physics."""
