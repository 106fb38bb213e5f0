"""Starts runs on Google Cloud and takes down what it started."""
