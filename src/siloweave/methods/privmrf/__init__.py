"""PrivMRF: a Markov random field whose graph is grown by noisy dependence."""
