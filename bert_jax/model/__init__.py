"""What a BERT computes: encoder, heads, losses."""
