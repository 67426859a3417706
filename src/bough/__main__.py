"""`python -m bough`."""

import sys

from bough.cli import main

if __name__ == "__main__":
    sys.exit(main())
