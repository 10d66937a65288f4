KEY = ("part", "table", "method", "epsilon", "seed")
