"""What a run would need on absent accelerators."""
