"""`temper up` whose runs, and all that it starts, know the probe: `PROBE_ENGINE` is such an interpreter."""

import os
import sys

sys.executable = os.environ["PROBE_ENGINE"]

from flows.cli import main  # noqa: E402

sys.exit(main())
