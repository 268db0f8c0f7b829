"""A server of one's own with OpenAI's /files and /batches is asked in batches, by the name that its user gave it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from batchpond.errors import ProviderError
from batchpond.model import CreateSpec, ErrorClass, Rejected, Unclear
from batchpond.providers import registry
from batchpond.run.session import Providers
from tests.rigs.batch_wires import HARD, TOKEN, openai_batch
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import Rig
from tests.rigs.wire_script import Script

NAME = "compatible-lab"


def script(*answers: httpx.Response | Exception) -> Script:
    made = Script(*answers)
    environ = {"LAB_BASE_URL": "https://lab.example/v1", "LAB_API_KEY": "canary-lab-0123456789"}
    made.wire = registry.connect(NAME, made.clock, transport=made.transport, environ=environ)
    return made


SPEC = CreateSpec(TOKEN, "/v1/chat/completions", "m", "file-1", Path("unused"), 2, (("batchpond", TOKEN),))


def test_a_server_without_batches_is_named_with_the_way_out(tmp_path: Path) -> None:
    """The upload, which costs nothing, is the first to find out."""
    (tmp_path / "p").write_bytes(b"{}\n")
    with pytest.raises(ProviderError) as caught:
        script(httpx.Response(404, json={"detail": "Not Found"})).wire.upload(tmp_path / "p", "t.jsonl")
    assert caught.value.hint == 'lab.example has no batches of OpenAI\'s kind: set mode = "live" for its models'


@pytest.mark.parametrize(
    "error", [{"error": {"message": "no"}}, {"error": "no"}, {"detail": "no"}, {"object": "error", "message": "no"}]
)
def test_errors_of_any_form_are_a_definite_no_with_a_request_id(error: object) -> None:
    """Without one they may be a proxy's, and nothing is bought twice for it."""
    answer = script(httpx.Response(400, json=error, headers={"x-request-id": "r"})).wire.create(SPEC)
    assert isinstance(answer, Rejected)
    assert (answer.error_class, answer.message) == (ErrorClass.PERMANENT, "no")
    assert isinstance(script(httpx.Response(400, json=error)).wire.create(SPEC), Unclear)


@pytest.mark.parametrize("doubt", [kind("x") for kind in HARD] + [httpx.Response(400, json={"message": "a gateway's"})])
def test_any_doubt_is_unclear_after_one_post(doubt: httpx.Response | Exception) -> None:
    made = script(doubt, httpx.Response(200, json=openai_batch()))
    assert isinstance(made.wire.create(SPEC), Unclear)
    assert len(made.requests) == 1


class Lab(Rig):
    """A study of a server of one's own, which is OpenAI's simulator by another name."""

    def plan(self) -> None:
        """Run `plan`."""
        text = self.study_path.read_text()
        self.study_path.write_text(text.replace('provider = "openai"', f'provider = "{NAME}"'))
        super().plan()

    def providers(self) -> Providers:
        """Connect anew, with the variables of the server's name alone."""
        found = {"LAB_BASE_URL": SIMULATED["openai"].base_url, "LAB_API_KEY": self.key}
        return Providers(lambda name: registry.connect(name, self.clock, transport=self.wire, environ=found))


def test_a_study_is_bought_once_though_an_answer_to_a_create_is_lost(tmp_path: Path) -> None:
    """Planned, sent, found by its token, collected: each request once, under the name of the server."""
    rig = Lab(tmp_path, models=SIMULATED["openai"].models[:1], max_requests=6, with_lens=False)
    rig.plan()
    for fault in ("reset_after", "stale_list=300"):
        rig.world.add_fault(f"batches.create@1:{fault}")
    rig.submit()
    rig.settle()
    assert len(rig.answers()) == 12
    assert (rig.wire.n_create_posts, {attempt.provider for attempt in rig.attempts()}) == (2, {NAME})
    assert rig.violations() == []
    rig.world.close()
