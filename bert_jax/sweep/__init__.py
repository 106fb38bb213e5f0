"""Fine-tuning with every combination of some fields' values."""
