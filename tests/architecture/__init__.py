"""The project's structural rules, each a function from one source file to its problems."""
