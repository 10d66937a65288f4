"""Organisations that hold parts of one table weave one synthetic table together."""

__all__ = ["__version__"]

# The version of this package, as in its metadata.
__version__ = "0.1.0"
