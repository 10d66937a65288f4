"""Generators that the owner of all rows trains without a guarantee."""
