"""Classifying or rating a text or a pair of texts."""
