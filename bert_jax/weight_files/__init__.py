"""Files of weights, read without executing them; no BERT."""
