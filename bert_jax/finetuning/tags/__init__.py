"""Tagging words, such as with named entities."""
