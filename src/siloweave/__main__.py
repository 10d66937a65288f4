"""The program `siloweave`, also as `python -m siloweave`.

The command line takes a moment to load, so it is loaded here, where Ctrl-C is looked after already.
"""

import os
import sys


def main() -> int:
    """Load the command line and run it; return the exit code."""
    try:
        from siloweave.app.cli import main as run_command_line

        return run_command_line()
    except KeyboardInterrupt:
        # Commands look after their own interruption, so that nothing was begun here.
        sys.stderr.write("\ninterrupted before anything was begun\n")
        # As a shell has it for SIGINT: 128 and the signal's number, 2.
        return 130


if __name__ == "__main__":
    # Python puts the working folder first among the places of modules, and that may be a study's
    # folder, which others made. The command `siloweave`, and `python -P`, do not.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - loads nothing more
        del sys.path[0]
    sys.exit(main())
