"""Fine-tuning: examples with labels to a score, predictions and an export."""
