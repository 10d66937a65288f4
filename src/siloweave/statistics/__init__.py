"""Exact functions of codes: marginals, workloads and association. Nothing here is private."""
