"""TwoRound over split columns: marginals across parties are measured without anyone seeing them."""
