"""Networks that parties with different rows train in rounds, without a guarantee."""
