"""A judgment's page shows the pictures that the judge was shown, and where they stood."""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

from tests.flow.test_media import PICTURES, with_photos
from tests.rigs.sim_study import STUDY, Rig
from tests.unit.browse.test_pages import client_of, get


def test_a_judgment_shows_what_the_judge_was_shown(tmp_path: Path) -> None:
    """In the order of the prompt, as data that no other host is asked for; a judgment without pictures shows none."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=50)
    with_photos(rig.study_path)
    rig.settle()
    client = client_of(rig.lake)
    found = rig.rows("select slot, item_first, item_second from plan order by slot", "plan")
    assert len(found) == 6
    for slot, first, second in found:
        text = get(client, "row", study=STUDY, row=f"r{int(str(slot)):012d}")
        urls = re.findall(r'<img src="data:image/(?:png|jpeg);base64,([^"]+)" alt="Picture \d">', text)
        assert [base64.b64decode(html.unescape(url)) for url in urls] == [PICTURES[str(first)], PICTURES[str(second)]]
        assert text.count("[picture or document]") == 2
        assert "<dt>pictures</dt>" not in text
    policy = client.get("/").headers["content-security-policy"]
    assert "img-src 'self' data:;" in policy
