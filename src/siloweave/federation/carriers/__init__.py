"""How questions get to the parties of a run, and answers back: in this process, or by others."""
