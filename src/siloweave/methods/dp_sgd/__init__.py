"""Networks trained under a budget: every step is a noisy sum of clipped gradients."""
