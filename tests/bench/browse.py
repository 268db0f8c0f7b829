"""What one page of `browse` costs in a study of a million planned requests: first pages, filters, a judgment, a pair.

    python -m tests.bench.browse [REQUESTS]        # default 1,000,000

Runs a pairwise study against the simulator, and asks for its pages in this process as the server does, each as if the
lake had just changed, so that no answer is kept from the one before. Prints the CPU seconds of each and the limit, one
second, and ends with 1 where one page passes it. The pages of all studies and of one, which count every request, are
printed beside that and held by nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from batchpond_browse import cases
from batchpond_browse.asking import Lake, Query
from batchpond_browse.pages import Reader
from batchpond_browse.server import Browser
from tests.bench import scale

LIMIT_S = 1.0
STUDY = "scale"
FILTERS: dict[str, tuple[dict[str, str], ...]] = {
    "rows": ({}, {"state": "tie"}, {"state": "errors"}, {"state": "open"}, {"template": "plain"}, {"q": "school"},
             {"judge": "openai/gpt-4.1-mini/default"}, {"item": "i00007"}, {"after": "r000000500000"}),
    "pairs": ({}, {"standing": "flip"}, {"standing": "disagreement"}, {"standing": "pending"}, {"labels": "some"},
              {"judge": "openai/gpt-4.1-mini/default"}, {"item": "i00007"}, {"q": "nowhere"}),
}  # fmt: skip


def cpu_s(browser: Browser, name: str, given: dict[str, str]) -> float:
    """Return the CPU seconds of one page of a server that runs already, as if the lake had just changed."""
    pages = replace(browser.pages, lake=Lake(browser.pages.lake.path))
    began_s = time.process_time()
    pages.page(Reader(), name, given)
    return time.process_time() - began_s


def main(n_requests: int) -> int:
    """Print the table and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        lake = scale.finished(Path(folder), n_requests)
        sql = "SELECT * FROM results WHERE study = $study AND slot = 777"
        (row,) = Lake(lake).rows(Query(sql, {"study": STUDY}), "study = $study AND slot = 777")
        asked = [(kind, {"study": STUDY, **given}) for kind, some in FILTERS.items() for given in some]
        asked += [("row", {"study": STUDY, "row": "r000000000777"}), ("case", {"study": STUDY, **cases.names_of(row)})]
        browser, worst_s = Browser(lake), 0.0
        cpu_s(browser, *asked[-1])  # what may be said of each is looked up once
        for name, given in asked:
            taken_s = cpu_s(browser, name, given)
            worst_s = max(worst_s, taken_s)
            print(
                f"{taken_s:5.2f}  {name} {' '.join(f'{key}={value}' for key, value in given.items() if key != 'study')}"
            )
        print(f"{worst_s:5.2f}  the dearest, limit {LIMIT_S}")
        for name, given in (("", {}), ("study", {"study": STUDY})):
            print(f"{cpu_s(browser, name, given):5.2f}  {name or 'all studies'}, no limit")
    return worst_s > LIMIT_S


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
