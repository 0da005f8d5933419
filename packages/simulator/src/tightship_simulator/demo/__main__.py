"""``python -m tightship_simulator.demo``: one night of three controllers on an embedded cluster, on this terminal."""

import signal
import sys

# Until there is anything to end, Ctrl-C just ends it, without a traceback of what was being imported.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from tightship_simulator.demo.command import main  # noqa: E402  -- that is what takes the time

sys.exit(main())
