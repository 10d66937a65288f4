"""What every method shares: its record, the one run, and the one fit. No method is imported."""
