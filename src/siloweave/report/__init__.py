"""Results and ledgers in, one self-contained page out."""
