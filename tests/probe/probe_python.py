"""Stands in for an interpreter: `probe_python.py -m stages request.json`, with the probe in the catalog."""

import sys

from temper_probe import register

from stages.__main__ import main

register()
sys.exit(main(sys.argv[3:]))
