"""Turns documents into vocabularies, rows and batches."""
