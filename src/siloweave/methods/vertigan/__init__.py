"""VertiGAN: one generator over split columns."""
