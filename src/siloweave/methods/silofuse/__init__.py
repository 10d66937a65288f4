"""Latent diffusion over split columns: SiloFuse, and E2EDistr beside it."""
