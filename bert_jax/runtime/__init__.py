"""A process: commands, signals, progress, files."""
