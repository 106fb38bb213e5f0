"""Readers of the files that users bring, which name the line of what is wrong."""
