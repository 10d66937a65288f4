"""Tables in, risks with intervals out: what an attacker gains from a synthetic table.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""
