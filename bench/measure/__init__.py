"""What bench/run measures, and how."""
