"""Predicts memory, time and cost of a run on absent accelerators."""
