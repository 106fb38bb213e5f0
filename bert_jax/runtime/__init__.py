"""What every process needs: commands, signals, progress, files."""
