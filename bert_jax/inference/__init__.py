"""What trained models are asked."""
