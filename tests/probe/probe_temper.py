"""The `temper` command with the probe in the catalog."""

import sys

from temper_probe import register

register()

from flows.cli import main  # noqa: E402

sys.exit(main())
