"""Chips, prices and topologies."""
