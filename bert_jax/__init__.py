"""BERT pre-training in JAX: raw text to a BERT that others can load."""

__version__ = '0.1.0'
