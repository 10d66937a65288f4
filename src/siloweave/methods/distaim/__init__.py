"""DistAIM: counts of rows split among parties, shared once between servers that open noisy ones."""
