"""Tables as codes in, numbers out: how close a synthetic table is, and how useful.

Every number here is computed from real rows and nobody pays for it: it is the owner's to see, not
to publish.
"""
