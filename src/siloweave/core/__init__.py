"""What every method shares: its record, the one run, and the one fit; no method is imported here."""
