"""Pre-training as a task: masked tokens and next sentences."""
