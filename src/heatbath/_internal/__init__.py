"""Helpers that know nothing about physics."""
