"""The files of a run: paths, checkpoints, config, log."""
