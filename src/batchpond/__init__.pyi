# The public names with their types, for editors and type checkers; `__init__.py` loads them when they are asked for.
from batchpond import errors as errors
from batchpond.api import Browsing as Browsing
from batchpond.api import Lake as Lake
from batchpond.api import progress as progress
from batchpond.doctor import Finding as Finding
from batchpond.interop.imports import ForeignReport as ForeignReport
from batchpond.interop.imports import ImportReport as ImportReport
from batchpond.interop.labels import Question as Question
from batchpond.interop.labels import Sheet as Sheet
from batchpond.interop.labels import Stratum as Stratum
from batchpond.lake.attempts import Attempt as Attempt
from batchpond.plan.report import CellReport as CellReport
from batchpond.plan.report import ModelReport as ModelReport
from batchpond.plan.report import PlanReport as PlanReport
from batchpond.plan.report import StageReport as StageReport
from batchpond.run.adopt import Adoption as Adoption
from batchpond.run.due import FailureCount as FailureCount
from batchpond.run.live.run import LaneProgress as LaneProgress
from batchpond.run.live.run import LiveReport as LiveReport
from batchpond.run.recover import FoundBatch as FoundBatch
from batchpond.run.recover import RecoverReport as RecoverReport
from batchpond.run.resolve import CancelReport as CancelReport
from batchpond.run.session import Counts as Counts
from batchpond.run.session import Note as Note
from batchpond.run.submit import ModelCost as ModelCost
from batchpond.run.submit import RetryReport as RetryReport
from batchpond.run.submit import SubmitPreview as SubmitPreview
from batchpond.run.submit import SubmitReport as SubmitReport
from batchpond.run.sync import SyncReport as SyncReport
from batchpond.study.objects import Study as Study
from batchpond.study.prices import Estimate as Estimate
from batchpond_report.parts import Report as Report

__version__: str
