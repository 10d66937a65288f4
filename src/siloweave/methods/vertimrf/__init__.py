"""VertiMRF: parties encode their columns once, and the server fits one Markov random field."""
