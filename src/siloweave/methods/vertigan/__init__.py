"""VertiGAN: a GAN over split columns with a private critic at every party."""
