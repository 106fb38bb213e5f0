"""Answering questions with a part of a passage."""
