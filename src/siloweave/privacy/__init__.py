"""What privacy costs and how it is kept: budgets, events, the ledger, and the only noise there is.

Knows no table, no model and no network.
"""
