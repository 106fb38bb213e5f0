"""What a run would need on accelerators that are not there."""
