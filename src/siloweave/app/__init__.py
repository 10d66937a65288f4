"""The command line and what it does: studies, dry runs, runs, reports, ledgers."""
