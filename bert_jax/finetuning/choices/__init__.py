"""Choosing one of several texts."""
