"""`python -m nogs` is the command `nogs`."""

import sys

from nogs.cli import main

if __name__ == "__main__":
    sys.exit(main())
