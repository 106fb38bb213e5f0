"""Text in: formats, cleaning, sentences."""
