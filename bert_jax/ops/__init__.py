"""Functions with a gradient, a kernel or random bits of their own."""
