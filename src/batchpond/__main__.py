"""`python -m batchpond` is the command line."""

import sys

from batchpond.cli import program

sys.exit(program())
