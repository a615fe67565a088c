"""The `temper` command with the probe in the catalog.

`PROBE_LEASE_BEAT=seconds` has leases renewed so often, that a test need not wait for their loss to be noticed.
"""

import functools
import os
import sys

from temper_probe import register

register()

import tasks.attempt  # noqa: E402
from flows.cli import main  # noqa: E402
from stages.store.lease import LeaseKeeper, LeaseTiming  # noqa: E402

if beat := os.environ.get("PROBE_LEASE_BEAT"):
    timing = LeaseTiming(ttl=60.0, beat=float(beat), request=1.0)
    tasks.attempt.LeaseKeeper = functools.partial(LeaseKeeper, timing=timing)

sys.exit(main())
