"""Noisy marginals over columns that lie at different parties; nobody sees an exact one.

A party counts marginals of its own columns itself, with noise of its own. A pair of columns at two
parties is a product of their rows that they open with noise that nobody knows. Any other marginal
is opened with the same noise by the first two parties of the study (secure_products.py has both,
after Beaver 1997, "Commodity-based cryptography", and Gilboa & Ishai 2014).
The coordinator deals the random words and carries what parties send each other, which it cannot
read. Whatever the number of marginals, there are these exchanges:

1. *begin*: keys, how many rows there are at most, and noisy histograms of columns that are cut;
2. *share*: each party's rows under masks, encrypted to the others (again for every slab of rows
   that fits into a message; no rows where the budget opens no table of two parties);
3. *measure*: any number of marginals, and again for more of them.

**Guarantee** (dp): rows over all parties together, add/remove or replace-one as the budget says,
towards the coordinator; any parties together, of three or more not both of the first two; and
everyone who sees what is released: an upper bound of the number of rows (where it is private),
noisy histograms, noisy marginals. A row is in one cell of each table. Parties know who is in the
table, so for them only a row's replacement has a meaning, which under an add/remove budget costs
twice its zCDP. Assumed: the coordinator follows the protocol (parties need not, see
secure_products.py) and asks all parties for the same marginals; domain, roster and which columns
are where are public. Every party computes prices from the study and from the request, for itself
and for all parties together, and refuses what goes beyond. Where two parties were asked for
different marginals, or sent different keys, rows or codes, their pads differ, and what both send
opens to random numbers, which are mostly refused; what a party counts alone is then held to its own
limit only. Rows above the bound are left out; that they exist has the probability that `UpperBound`
states.

`plan.py` has what all compute alike, `messages.py` the wire, `party.py` and `coordinator.py` the
two sides, and `forecast.py` what a run takes.
"""
