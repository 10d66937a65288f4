"""Models: pure mathematics, fit and sample. They know of no party and no privacy."""
