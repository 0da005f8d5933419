"""See :mod:`tightship_testkit.disasters.command`."""

import sys

from tightship_testkit.disasters.command import main

if __name__ == "__main__":
    sys.exit(main())
