"""The simulator's hosts: real sockets that misbehave, restarts, kill -9, the ledger, and its size."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond_sim import SimulatorError
from batchpond_sim.host.messages import IterBody, MultipartError, read_form
from batchpond_sim.host.server import Running, running
from batchpond_sim.world.world import Settings
from tests.rigs.simulator import AUTH, CHAT, api, payload

SOON = Settings(latency_s=(0.0, 0.0))
KEY = "sk-canary-0123456789"


def _client(sim: Running, timeout_s: float = 10.0) -> httpx.Client:
    return httpx.Client(base_url=sim.base_url, headers=AUTH, timeout=timeout_s)


def _create(http: httpx.Client, data: bytes) -> httpx.Response:
    file = http.post("/files", files={"file": ("in.jsonl", data)}, data={"purpose": "batch"}).json()
    return http.post("/batches", json={"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"})


# -- sockets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "created"), [("reset_before", 0), ("reset_after", 1)])
def test_a_reset_reaches_the_client_and_the_next_call_works(
    kind: str, created: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(Settings(faults=(f"batches.create@1:{kind}",))) as sim, _client(sim) as http:
        with pytest.raises(httpx.ReadError):
            _create(http, payload(1))
        assert len(sim.world.ledger.batches) == created
        assert _create(http, payload(1)).status_code == 200
    assert capfd.readouterr().err == ""


def test_a_hang_lasts_until_the_client_gives_up_and_stops_nobody_else() -> None:
    with running(Settings(faults=("models.list@1:hang_before",))) as sim, _client(sim, 0.3) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.get("/models")
        assert http.get("/models").status_code == 200


def test_a_hang_that_the_client_outlasts_ends_in_a_reset_on_time() -> None:
    """Not before its time, and by a reset: a client that had waited to its own end would say that it timed out."""
    with running(Settings(faults=("batches.create@1:hang_after=0.3",))) as sim, _client(sim, 300.0) as http:
        start = time.monotonic()
        with pytest.raises(httpx.ReadError):
            _create(http, payload(1))
        assert time.monotonic() - start >= 0.3
        assert len(sim.world.ledger.batches) == 1


def test_downloads_break_on_real_sockets_as_they_do_in_process(capfd: pytest.CaptureFixture[str]) -> None:
    kinds = ("truncate=0.5", "truncate_mid=0.5", "reset_at=3000", "slow=20000")
    faults = tuple(f"files.content@{n}:{kind}" for n, kind in enumerate(kinds, 1))
    with running(Settings(latency_s=(0.0, 0.0), faults=faults)) as sim, _client(sim) as http:
        batch = http.get(f"/batches/{_create(http, payload(10)).json()['id']}").json()
        url = f"/files/{batch['output_file_id']}/content"
        clean, cut = http.get(url), http.get(url)
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            http.get(url)
        start = time.monotonic()
        slow = http.get(url).content
        assert time.monotonic() - start > len(slow) / 20000 * 0.8
        whole = http.get(url).content
        assert whole == slow
        assert whole.startswith(clean.content)
        assert clean.headers["transfer-encoding"] == "chunked"
        assert whole.startswith(cut.content)
        assert not cut.content.endswith(b"\n")
        assert cut.headers["connection"] == "close"
    assert capfd.readouterr().err == ""


def test_a_client_that_dies_in_an_upload_leaves_no_file_and_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    with running(SOON) as sim:
        head = (
            f"POST /openai/v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: {AUTH['Authorization']}\r\n"
            "Content-Type: multipart/form-data; boundary=xx\r\nContent-Length: 5000\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", sim.port)) as plug:
            plug.sendall(head.encode() + _form(b"abc")[:90])
        with _client(sim) as http:
            assert http.get("/files").json()["data"] == []
            blobs = sim.world.folder("openai", "blobs")
            deadline = time.monotonic() + 5
            while list(blobs.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert list(blobs.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_one_connection_carries_many_calls_and_chunked_uploads() -> None:
    with running(SOON) as sim, _client(sim) as http:
        body = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        body += b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nhello\r\n--b--\r\n'
        parts: Iterator[bytes] = iter([body[i : i + 7] for i in range(0, len(body), 7)])
        answer = http.post("/files", content=parts, headers={"content-type": "multipart/form-data; boundary=b"})
        assert answer.json()["bytes"] == 5
        for _ in range(20):
            assert http.get("/models").status_code == 200


def test_only_loopback_is_listened_on_and_a_taken_port_is_named() -> None:
    with running(SOON) as sim:
        assert sim.root_url.startswith("http://127.0.0.1:")
        with pytest.raises(SimulatorError, match=str(sim.port)), running(SOON, port=sim.port):
            pass


# -- control routes and ledger -----------------------------------------------------------------


def test_the_control_routes_steer_a_running_simulator() -> None:
    with running(Settings(latency_s=(1000.0, 1000.0))) as sim, _client(sim) as http:
        root = sim.root_url
        batch_id = _create(http, payload(3)).json()["id"]
        before = http.get(f"{root}/_sim/ledger").json()["now"]
        assert http.post(f"{root}/_sim/advance", json={"seconds": 2000}).json()["now"] >= before + 2000
        assert http.get(f"/batches/{batch_id}").json()["status"] == "completed"
        assert http.post(f"{root}/_sim/faults", json={"spec": "models.list@1:status=503"}).status_code == 200
        assert [http.get("/models").status_code for _ in range(2)] == [503, 200]
        assert http.delete(f"{root}/_sim/faults").json()["faults"] == []
        judged = http.post(f"{root}/_sim/judges", json={"model": "gpt-5*", "position_bias": 1}).json()
        assert judged["judges"][0]["position_bias"] == 1
        samples = {"samples": [{"text": "some text", "quality": 0.5}]}
        assert http.post(f"{root}/_sim/qualities", json=samples).json()["n_qualities"] == 1
        for path, body in (("faults", {"spec": "nonsense"}), ("advance", {"seconds": -1}), ("advance", {}), ("x", {})):
            answer = http.post(f"{root}/_sim/{path}", json=body)
            assert answer.status_code in (400, 404)
            assert answer.json()["error"]["message"]


def test_the_ledger_counts_every_call_batch_and_token_and_holds_no_key(tmp_path: Path) -> None:
    with api(tmp_path, "batches.create@2:reset_after", "batches.create@3:reset_before") as sim:
        done = sim.finished(payload(5))
        for _ in range(2):
            with pytest.raises(httpx.ReadError):
                sim.create(payload(5))
        summary = sim.world.snapshot()
        assert summary["calls"]["openai.batches.create"] == 3
        assert len(summary["batches"]) == 2
        usage = done["usage"]
        assert summary["billed"] == {
            "n_requests": 5,
            "input_tokens": usage["input_tokens"],
            "output_tokens": usage["output_tokens"],
        }
        assert summary["hosts"] == {"127.0.0.1:1": summary["n_requests"]}
        assert len(summary["keys"]) == 1
        log = [json.loads(row) for row in (tmp_path / "ledger.jsonl").read_bytes().splitlines()]
        asked = [row for row in log if row["kind"] == "request"]
        assert all("authorization" in row["header_names"] for row in asked)
        answers = [row for row in log if row["kind"] == "answer"]
        assert [row["status"] for row in answers if row["faults"]] == [None, None]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


# -- restarts ----------------------------------------------------------------------------------


_SERVE = """
import signal, sys, threading
from pathlib import Path
from batchpond_sim.host.server import running
from batchpond_sim.world.world import Settings
state, seed, *faults = sys.argv[1:]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
settings = Settings(seed=int(seed) if seed else None, latency_s=(50, 50), faults=tuple(faults))
with running(settings, Path(state)) as sim:
    print(sim.base_url, flush=True)
    stop.wait()
"""


@contextmanager
def _process(state: Path, seed: str, *faults: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    command = [sys.executable, "-c", _SERVE, str(state), seed, *faults]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, headers=AUTH, timeout=10) as http:
            yield process, http
        process.kill()


def _root(http: httpx.Client) -> str:
    return str(http.base_url).split("/openai")[0]


def test_a_killed_simulator_goes_on_where_it_was(tmp_path: Path) -> None:
    with _process(tmp_path / "sim", "5", "batches.create@1:reset_after") as (process, http):
        http.post(f"{_root(http)}/_sim/qualities", json={"samples": [{"text": "t", "quality": 1}]})
        http.post(f"{_root(http)}/_sim/advance", json={"seconds": 1000})
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            _create(http, payload(4))
        second = _create(http, payload(4)).json()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with (tmp_path / "sim" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"kind":"req')
    with _process(tmp_path / "sim", "", "batches.create@1:reset_after") as (process, http):
        known = http.get("/batches").json()["data"]
        assert known[0]["id"] == second["id"]
        assert len(known) == 2
        summary = http.get(f"{_root(http)}/_sim/ledger").json()
        assert (len(summary["batches"]), summary["seed"]) == (2, 5)
        http.post(f"{_root(http)}/_sim/advance", json={"seconds": 60})
        ended = http.get(f"/batches/{second['id']}").json()
        assert ended["status"] == "completed"
        assert ended["created_at"] == second["created_at"]
        assert len(http.get(f"/files/{ended['output_file_id']}/content").content.splitlines()) == 4
        assert _create(http, payload(1)).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_a_kill_between_a_batch_and_its_ledger_line_is_made_good(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        batch_id = sim.finished(payload(3))["id"]
        bill = sim.world.ledger.bills[batch_id]
    ledger = tmp_path / "ledger.jsonl"
    kept = [row for row in ledger.read_bytes().splitlines(True) if b'"created"' not in row and b'"billed"' not in row]
    ledger.write_bytes(b"".join(kept))
    with api(tmp_path) as sim:
        assert list(sim.world.ledger.batches) == [batch_id]
        assert sim.world.ledger.bills[batch_id] == bill


def test_results_half_published_at_a_kill_are_published_again(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        batch = sim.finished(payload(30))
        before = sim.content(batch["output_file_id"])
        record = tmp_path / "openai" / "batches" / f"{batch['id']}.json"
        opened = json.loads(record.read_bytes())
        record.write_text(json.dumps({**opened, "is_ended": False, "output_file_id": None}))
        (tmp_path / "openai" / "files" / f"{batch['output_file_id']}.json").unlink()
        sim.transport.restart()
        assert sim.content(sim.get(batch["id"])["output_file_id"]) == before
        assert len(sim.world.ledger.bills) == 1


def test_virtual_time_has_a_speed_and_only_goes_forward(tmp_path: Path) -> None:
    with api(tmp_path, speed=3600.0) as sim:
        start = sim.world.now_s()
        sim.clock.advance(2)
        assert sim.world.now_s() == pytest.approx(start + 7200)
        with pytest.raises(SimulatorError):
            sim.world.advance(-1)


# -- size --------------------------------------------------------------------------------------


def test_ten_thousand_lines_cost_little_and_memory_stays_flat(tmp_path: Path) -> None:
    """At most 150 us of CPU a line in all, and less than 60 MB more than before."""
    data = payload(10_000)
    with api(tmp_path) as sim:
        batch_id = sim.create(data)
        sim.clock.advance(200)
        peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        batch = sim.get(batch_id)
        spent_s = time.process_time() - start
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 60_000
        assert spent_s / 10_000 < 150e-6
        assert batch["request_counts"]["completed"] == 10_000
        output = tmp_path / "openai" / "blobs" / batch["output_file_id"]
        with output.open("rb") as rows:
            assert len({json.loads(row)["custom_id"] for row in rows}) == 10_000


def test_too_many_lines_fail_the_batch(tmp_path: Path) -> None:
    row = b'{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}\n'
    with api(tmp_path) as sim:
        batch = sim.finished(b"".join(row % i for i in range(50_001)))
        assert (batch["status"], batch["errors"]["data"][0]["line"]) == ("failed", 50_001)


# -- multipart ---------------------------------------------------------------------------------


def _form(data: bytes, name: str = "f") -> bytes:
    head = f'--xx\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return head + data + b'\r\n--xx\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xx--\r\n'


@given(
    data=st.binary(max_size=300) | st.lists(st.sampled_from([b"\r\n", b"--", b"xx", b"\r", b"a"])).map(b"".join),
    step=st.integers(1, 50),
)
def test_any_file_survives_a_form_cut_into_any_pieces(tmp_path_factory: Any, data: bytes, step: int) -> None:
    path = tmp_path_factory.getbasetemp() / "part"
    body = _form(data)
    if b"\r\n--xx" in data or data.startswith(b"--xx"):
        return
    form = read_form(
        "multipart/form-data; boundary=xx",
        IterBody(body[i : i + step] for i in range(0, len(body), step)),
        path,
        10_000,
    )
    assert (path.read_bytes(), form.fields, form.size_bytes) == (data, {"purpose": "batch"}, len(data))


@pytest.mark.parametrize("cut", [0, 10, 80, 100, -5])
def test_a_form_cut_short_is_an_error(tmp_path: Path, cut: int) -> None:
    with pytest.raises(MultipartError):
        read_form("multipart/form-data; boundary=xx", IterBody(iter([_form(b"abc")[:cut]])), tmp_path / "p", 10_000)


def test_a_large_upload_by_the_sdk_is_streamed_to_disk() -> None:
    """30 MB through the official SDK arrive byte for byte."""
    data = payload(100) * 1200
    with running(SOON) as sim, openai.OpenAI(api_key=KEY, base_url=sim.base_url, max_retries=0) as sdk:
        file = sdk.files.create(file=("big.jsonl", data), purpose="batch")
        assert file.bytes == len(data) > 30_000_000
        assert sdk.files.content(file.id).read() == data
