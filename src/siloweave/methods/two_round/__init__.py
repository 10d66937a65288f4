"""TwoRound: all pairs once, then what a plan asks for."""
