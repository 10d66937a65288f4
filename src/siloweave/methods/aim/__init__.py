"""AIM: central select-measure-fit of marginals."""
