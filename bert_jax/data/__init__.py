"""Documents to vocabularies, rows and batches."""
