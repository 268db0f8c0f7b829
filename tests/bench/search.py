"""What a search for words in the answers of a large study costs in `browse`, beside DuckDB's `contains` alone.

    python -m tests.bench.search [REQUESTS]        # default 400,000

Runs a pairwise study against the simulator, and writes the answers again with about a kilobyte of text each, of which
no two are alike. Then, in turns, in this process: a list of judgments with words that no answer has, page by page as
the browser asks for it, until all is looked at; and one SELECT of the lens that looks for the same words in the same
columns. Prints the CPU seconds of both, their ratio and its limit, and the longest that one page took, which is how
long a search that was stopped goes on at most; ends with 1 where the limit is passed.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond.lake.store import LENS, Store
from batchpond.views import database
from batchpond.views.refresh import STAMP, refresh
from batchpond_browse import lists
from batchpond_browse.asking import Lake
from tests.bench import scale
from tests.bench.derive import reason

N_ROUNDS = 3
RATIO_MAX = 2.0
ROWS = 5_000  # of a group, as `sync` writes them
NOWHERE = "no such words"
CONTAINS = """
    SELECT count(*) FROM responses
    WHERE contains(lower(text), $q) OR contains(lower(thoughts), $q) OR contains(lower(refusal), $q)
        OR contains(lower(error_message), $q)
    UNION ALL
    SELECT count(*) FROM judgments WHERE contains(lower(explanation), $q)
    UNION ALL
    SELECT count(*) FROM plan WHERE contains(lower(item_first), $q) OR contains(lower(item_second), $q)
"""


def build(folder: Path, n_requests: int) -> Path:
    """Make the lake of a study whose answers are long, and return where it is."""
    lake = scale.finished(folder, n_requests)
    chance = random.Random(1)
    for path in sorted((lake / "responses").rglob("*.parquet")):
        rows = pq.read_table(path)
        texts = [f"{reason(chance, 160)}\n{text}" for text in rows.column("text").to_pylist()]
        at = rows.schema.get_field_index("text")
        pq.write_table(
            rows.set_column(at, rows.schema.field(at), pa.array(texts)), path, compression="zstd", row_group_size=ROWS
        )
    for name in (LENS, STAMP):  # no file that is published changes: the lens is made anew
        (lake / name).unlink()
    refresh(Store.open(lake))
    return lake


def searched(lake: Lake) -> tuple[float, float]:
    """Search until all is looked at; returns the CPU seconds in all and the longest that a page took by the clock."""
    began, longest_s = time.process_time(), 0.0
    more: dict[str, str] | None = {"q": NOWHERE}
    while more is not None:
        page_began = time.monotonic()
        page = lists.page(lake, lists.Wish("rows", "scale", more))
        longest_s = max(longest_s, time.monotonic() - page_began)
        assert page.rows == []
        more = page.more
    return time.process_time() - began, longest_s


def contained(path: Path) -> float:
    """Look for the words by one SELECT; returns the CPU seconds, those to open the lens included."""
    began = time.process_time()
    with database.connect(path) as lens:
        assert {n for (n,) in lens.execute(CONTAINS, {"q": NOWHERE}).fetchall()} == {0}
    return time.process_time() - began


def main() -> int:
    """Print the figures."""
    n_requests = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    with tempfile.TemporaryDirectory(prefix="batchpond-search-") as name:
        path = build(Path(name), n_requests)
        rounds = [(*searched(Lake(path)), contained(path)) for _ in range(N_ROUNDS)]
    took_s, longest_s, floor_s = (min(values) for values in zip(*rounds, strict=True))
    print(f"{n_requests:,} judgments: {took_s:.2f} CPU s, `contains` alone {floor_s:.2f}")
    print(f"a page took at most {longest_s:.2f} s by the clock")
    print(f"ratio {took_s / floor_s:.2f}, limit {RATIO_MAX}")
    return int(took_s > RATIO_MAX * floor_s)


if __name__ == "__main__":
    sys.exit(main())
