"""`python -m siloweave` is the command line."""

import os
import sys

# Python puts the working folder first among the places of modules, and that may be a study's
# folder, which others made. The command `siloweave`, and `python -P`, do not.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - loads nothing more
    del sys.path[0]

from siloweave.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
