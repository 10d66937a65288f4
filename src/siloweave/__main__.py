"""`python -m siloweave` is the command line."""

import sys

from siloweave.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
