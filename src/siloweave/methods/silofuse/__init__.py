"""SiloFuse and E2EDistr: latent diffusion over parties that hold different columns."""
