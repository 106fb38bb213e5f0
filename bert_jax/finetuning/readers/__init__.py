"""Readers of the files that users bring.

What is missing or malformed is an `errors.UserError`, which names the line.
"""
