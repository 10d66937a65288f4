"""What a column holds: rules in tables, and the evidence that they look at.

`rules` has all of them, in the order in which they are asked; a `rule` is a name, a test, a kind
and a sentence. Tests are methods of a class for each family of columns: `stored`, `texts`,
`written_numbers`, `times` and `numbers`. Data are apart from code: `words` has what columns are
called and what texts say in several languages, `patterns` how values are written, and `thresholds`
how many rows or values are enough. `names` looks at a column's name, and `unknown_codes` for codes
of a missing value among numbers.
"""
