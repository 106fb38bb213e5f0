"""Text to WordPiece ids."""
