"""Functions with a custom gradient, a Pallas kernel or own random bits."""
