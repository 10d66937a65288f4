"""Every method: one folder per paper, and a registry that lists them all."""
