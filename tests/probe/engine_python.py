"""Stands in for the interpreter of a worker's runs: `engine_python.py -m flows.scheduler.engine_process`.

The probe is in the catalog, and the stages' own processes know it too.
"""

import runpy
import sys

from temper_probe import register

register()
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
