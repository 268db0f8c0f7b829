"""Conversations under pressure: every turn is built from the model's real answers, and judged by several judges."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from tests.stage_study import StageRig, models, stage, use

from batchpond.simulators.world import Settings
from batchpond.stats_free import wilson
