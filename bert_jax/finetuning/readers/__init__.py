"""Reads the files that users bring: tables, CoNLL, SQuAD, GLUE, TFDS."""
