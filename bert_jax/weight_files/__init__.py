"""Reads and writes files of weights safely; knows nothing of BERT's layers."""
