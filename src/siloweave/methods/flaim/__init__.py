"""FLAIM: AIM over split rows, under masked sums."""
