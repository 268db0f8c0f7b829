"""Workers of mode `files` as programs, against a server on the loopback whose own ledger counts what it was asked.

`python -m tests.sweeps.workers` kills them a hundred times.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import jsonschema
import pytest
import yaml

from batchpond.lake.attempts import Phase
from batchpond.run.resolve import cancel
from batchpond_work.work import GRACE_S
from tests.rigs import forked
from tests.rigs.files_study import FilesRig
from tests.rigs.pages import GUIDES, blocks
from tests.rigs.swept import some
from tests.rigs.workers import BOUND_S, HOSTS, Size, Workers, kill_at_random, submitted, workers
from tests.unit.cli.test_cli_lake import documented

SIZE = Size(n_items=11, max_requests=70, part_requests=20)
SMALL = Size(n_items=4, max_requests=50, part_requests=5)
SLOW = {"live_latency_s": (0.05, 0.1)}
ALONE = """
import sys
from batchpond_work.__main__ import main
code = main(sys.argv[1:])
heavy = {"batchpond", "duckdb", "polars", "pyarrow", "numpy", "orjson"} & set(sys.modules)
sys.exit(f"loaded {heavy}" if heavy else code)
"""
# Reads requests and writes rows as an engine with a command of its own would; the third word says how it fails.
COMMAND = """
import json, sys
asked, answered, fate = sys.argv[1:]
lines = open(asked).read().splitlines()
with open(answered, "w") as out:
    for line in lines[: 2 if fate == "fails" else -1 if fate == "short" else None]:
        name = "another" if fate == "mixed" else json.loads(line)["custom_id"]
        message = {"role": "assistant", "content": "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"}
        body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        row = {"custom_id": name, "response": {"status_code": 200, "body": body}, "error": None}
        out.write(json.dumps(row) + "\\n")
sys.exit(fate == "fails")
"""
# What `vllm serve MODEL --host H --port P` is to a worker: a server that is there after a while.
VLLM = """#!{python}
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
assert sys.argv[1] == "serve" and sys.argv[7:] in ([], ["--enforce-eager"]), sys.argv
model, port = sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1])
if model != {model!r}:
    sys.exit("no such model")

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.answer({{"data": [{{"id": model}}]}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {{"role": "assistant", "content": "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"}}
        choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
        self.answer({{"object": "chat.completion", "model": asked["model"], "choices": [choice]}})

open({pid!r}, "w").write(str(__import__("os").getpid()))
time.sleep(0.3)
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> FilesRig:
    """110 requests in two batches and six parts."""
    return submitted(tmp_path_factory.mktemp("submitted"), SIZE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FilesRig:
    """Twelve requests in one batch and three parts."""
    return submitted(tmp_path_factory.mktemp("small"), SMALL)


Laid = Callable[..., AbstractContextManager[Workers]]


@pytest.fixture
def laid(tmp_path: Path, small: FilesRig) -> Laid:
    """What lays out a copy of the small lake beside a server with these settings."""
    return partial(workers, tmp_path / "laid", small, SMALL)


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + BOUND_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


# --- many of them ------------------------------------------------------------------------------------


def test_workers_on_two_hosts_ask_each_request_once(tmp_path: Path, lake: FilesRig) -> None:
    """Without a coordinator: every part is one worker's, and one file in the end; then there is nothing left to ask."""
    with workers(tmp_path, lake, SIZE, **SLOW) as made:
        started = [made.start("--concurrency", "4", "--flush", "5", host=HOSTS[n % 2]) for n in range(3)]
        said = [process.communicate(timeout=BOUND_S)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], said
        assert (made.n_asked, made.n_again) == (SIZE.n_requests, 0)
        assert set(made.rows().values()) == {1}
        names = [path.name for path in made.rig.inbox.iterdir()]
        assert len(names) == 6
        assert {host for host in HOSTS for name in names if f"-{host}-" in name} == set(HOSTS)
        code, last = made.run()
        assert (code, made.n_asked) == (0, SIZE.n_requests)
        assert f"asked 0, answered 0 (0 errors), {SIZE.n_requests} had answers already, 0 left" in last
        made.check_whole()


def test_killed_and_put_to_sleep_at_any_moment(tmp_path: Path, lake: FilesRig) -> None:
    """At most the calls under way and one part are asked again, by the server's ledger; `sync` finds all of it once."""
    with workers(tmp_path, lake, SIZE, live_latency_s=(0.1, 0.3)) as made:
        toll = kill_at_random(made, random.Random(5), n_kills=3, concurrency=3)
        assert toll.n_kills >= 1


def test_what_is_answered_in_part_is_not_taken(tmp_path: Path, lake: FilesRig) -> None:
    """However long nothing was written: a batch waits until each of its requests has a row."""
    with workers(tmp_path, lake, SIZE, **SLOW) as made:
        process = made.start("--concurrency", "2", "--flush", "2", "--lease", "1")
        wait_until(lambda: len(made.rows()) >= 6)
        process.kill()
        process.wait()
        made.rig.age()
        made.rig.sync()
        assert {attempt.phase for attempt in made.rig.attempts()} == {Phase.OPEN}
        assert made.run("--lease", "1")[0] == 0
        assert made.n_asked <= SIZE.n_requests + 2 + SIZE.part_requests
        made.check_whole()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_end_brings_home_what_is_under_way(
    tmp_path: Path, lake: FilesRig, number: int
) -> None:
    """Calls under way end and are written, its part is free at once, and nothing is asked twice."""
    with workers(tmp_path, lake, SIZE, live_latency_s=(0.2, 0.3)) as made:
        process = made.start("--concurrency", "4", "--lease", "600")
        wait_until(lambda: made.n_asked >= 12)
        process.send_signal(number)
        said = process.communicate(timeout=BOUND_S)[1]
        assert process.returncode == 130
        assert "stopped: asked" in said
        assert len(made.rows()) == made.n_asked
        began_s = time.monotonic()
        assert made.run("--concurrency", "64")[0] == 0
        assert time.monotonic() - began_s < 30
        assert (made.n_asked, made.n_again) == (SIZE.n_requests, 0)


def test_it_needs_nothing_of_batchpond(laid: Laid) -> None:
    """Where the package was copied to a machine of its own: no engine of SQL or tables is loaded, nor batchpond."""
    with laid() as made:
        command = [sys.executable, "-c", ALONE, str(made.rig.folder), "--engine", made.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND_S)
        assert done.returncode == 0, done.stderr
        made.check_whole()


def test_as_a_command(laid: Laid) -> None:
    """`batchpond work` is the same worker; --json prints what it did, and errors are those of every command."""
    with laid() as made:
        folder = os.fspath(made.rig.folder)
        done = forked.run_text("work", folder, "--engine", made.url, "--json", env=os.environ)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert (document["n_asked"], document["n_answered"], document["n_parts"]) == (12, 12, 3)
        assert set(document) == documented()["work"]
        done = forked.run_text("work", folder, "--engine", "localhost:8000", env=os.environ)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no URL of a server" in done.stderr
        made.check_whole()


# --- servers that fail -------------------------------------------------------------------------------------


def test_a_dead_server_ends_the_worker_and_nothing_is_called_an_error(laid: Laid) -> None:
    """Exit code 1, no row, and the part is free for the next worker."""
    with laid() as made:
        code, said = made.run("--tries", "2", "--lease", "600", engine="http://127.0.0.1:9/v1")
        assert (code, made.rows()) == (1, {})
        assert "answered nothing in 2 tries: ConnectError" in said
        assert made.run()[0] == 0
        made.check_whole()


@pytest.mark.parametrize(("status", "code"), [(401, 4), (402, 4), (403, 4), (404, 2)])
def test_what_every_call_would_meet_ends_the_worker(laid: Laid, status: int, code: int) -> None:
    """A key that is refused, money, a model that is not served: nothing of it is an answer to a request."""
    with laid(faults=(f"live:status={status}",)) as made:
        assert made.run("--concurrency", "2")[0] == code
        assert (made.rows(), made.n_asked <= 2) == ({}, True)


@pytest.mark.parametrize("status", some(403, swept=[400]))
def test_a_request_that_is_refused_has_a_row_and_one_that_fails_in_passing_is_tried_again(
    laid: Laid, status: int
) -> None:
    """A 400, and a 403 of who answers others, are errors; 429 with its Retry-After, 503 and a reset are none."""
    faults = ("live@1:retry_after=1", "live@2:status=503", "live@3:reset_before", f"live@9:status={status}")
    with laid(faults=faults) as made:
        code, said = made.run("--concurrency", "1")
        assert (code, made.n_asked) == (0, 15), said
        assert "answered 12 (1 errors)" in said
        made.rig.age()
        made.rig.sync()
        statuses = made.rig.rows("select status, count(*) from responses group by all order by all", "responses")
        assert statuses == [("errored", 1), ("succeeded", 11)]


def test_a_request_that_the_server_cannot_answer_is_left_or_given_up(laid: Laid) -> None:
    """The others are answered; exit code 1 says that some are left, `--give-up` makes errors of them."""
    with laid(judges=("gpt-4.1-mini:error_rate=0.3",)) as made:
        code, said = made.run("--tries", "2")
        n_left = SMALL.n_requests - len(made.rows())
        assert (code, 0 < n_left < SMALL.n_requests) == (1, True), said
        assert "without an answer: HTTP 500" in said
        n_asked = made.n_asked
        code, said = made.run("--tries", "2", "--give-up")
        assert (code, made.n_asked - n_asked) == (0, 2 * n_left), said
        assert f"answered {n_left} ({n_left} errors), {SMALL.n_requests - n_left} had answers already" in said
        made.rig.age()
        made.rig.sync()
        assert [attempt.phase for attempt in made.rig.attempts()] == [Phase.VERIFIED]
        assert len(made.rig.answers()) == SMALL.n_requests - n_left


def test_a_key_is_sent_where_one_is_named_and_shown_nowhere(laid: Laid, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its variable alone."""
    monkeypatch.setenv("JUDGE_KEY", "sk-canary-1234")
    with laid(keys={"sk-canary-1234": "p"}) as made:
        code, said = made.run()
        assert (code, made.rows()) == (4, {})
        assert made.run("--key-env", "NOT_SET")[0] == 2
        code, more = made.run("--key-env", "JUDGE_KEY")
        assert code == 0
        files = b"".join(path.read_bytes() for path in made.rig.folder.rglob("*") if path.is_file())
        assert "canary" not in said + more + files.decode()


# --- what is not to be asked -----------------------------------------------------------------------------------


def test_a_batch_that_is_cancelled_is_not_asked_further(tmp_path: Path, lake: FilesRig) -> None:
    """What came stays, the rest of it is left alone, the other batch is answered; `sync` counts what never came."""
    with workers(tmp_path, lake, SIZE, live_latency_s=(0.05, 0.1)) as made:
        first = sorted(made.rig.outbox.glob("*.manifest.json"))[0].name.removesuffix(".manifest.json")
        process = made.start("--concurrency", "2", "--flush", "2")
        wait_until(lambda: len(made.rows()) >= 4)
        cancel(made.rig.store(), [first], providers=made.rig.providers())
        assert process.wait(BOUND_S) == 0
        assert made.n_asked < SIZE.n_requests
        made.rig.age()
        made.rig.sync()
        assert {attempt.phase for attempt in made.rig.attempts()} == {Phase.VERIFIED}
        assert len(made.rig.answers()) == len(made.rows()) == made.n_asked


def test_only_what_the_engine_can_answer_is_asked(tmp_path: Path) -> None:
    """Batches of another model, of another provider's form, or not whole yet are left to whom they are for."""
    models = ("gpt-4.1-mini", "gpt-4o", "claude-haiku-4-5")
    with workers(tmp_path, submitted(tmp_path / "submitted", SMALL, models), SMALL) as made:
        code, said = made.run("--model", "gpt-4o")
        assert (code, made.n_asked) == (0, 12), said
        (path,) = (path for path in made.rig.outbox.glob("*.jsonl") if b'"model":"gpt-4.1-mini"' in path.read_bytes())
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        code, said = made.run()
        assert (code, made.n_asked) == (1, 12), said
        assert "is in a form that this engine does not read" in said
        assert "is not, or not yet, the file that its manifest describes" in said
        path.write_bytes(whole)
        code, said = made.run()
        assert (code, made.n_asked) == (0, 24), said


def test_a_worker_that_watches_takes_up_what_comes_later(laid: Laid) -> None:
    """And ends when it is told to."""
    with laid() as made:
        (manifest,) = made.rig.outbox.glob("*.manifest.json")
        away = manifest.rename(made.rig.folder / "away")
        process = made.start("--watch")
        time.sleep(1.0)
        assert (process.poll(), made.n_asked) == (None, 0)
        away.rename(manifest)
        wait_until(lambda: len(made.rows()) == 12)
        process.terminate()
        assert process.wait(BOUND_S) == 130
        made.check_whole()


# --- templates -----------------------------------------------------------------------------------------------

FILES = {block.fate: block.text for block in blocks(GUIDES / "files.md") if block.fate in {"slurm.sh", "job.yaml"}}
TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 1}
NAMED = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}


def closed(required: str = "", **properties: object) -> dict[str, object]:
    """Return the schema of an object that has these members and no other."""
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


def listed(schema: object) -> dict[str, object]:
    return {"type": "array", "minItems": 1, "items": schema}


# batch/v1 Job, by the Kubernetes API reference 1.33, as far as the template goes.
CONTAINER = closed(
    "name image", name=TEXT, image=TEXT, workingDir=TEXT, command=listed(TEXT), args=listed(TEXT),
    env=listed(closed("name valueFrom", name=TEXT, valueFrom=closed(fieldRef=closed("fieldPath", fieldPath=TEXT)))),
    resources=closed(limits={"type": "object", "additionalProperties": COUNT}),
    volumeMounts=listed(closed("name mountPath", name=TEXT, mountPath={"type": "string", "pattern": "^/"})),
)  # fmt: skip
POD = closed(
    "restartPolicy containers",
    restartPolicy={"enum": ["Never", "OnFailure"]},
    terminationGracePeriodSeconds=COUNT,
    containers=listed(CONTAINER),
    volumes=listed(
        closed(
            "name",
            name=TEXT,
            persistentVolumeClaim=closed("claimName", claimName=TEXT),
            emptyDir=closed(medium={"enum": ["", "Memory"]}),
        )
    ),
)
JOB = closed(
    "apiVersion kind metadata spec",
    apiVersion={"const": "batch/v1"},
    kind={"const": "Job"},
    metadata=NAMED,
    spec=closed(
        "template",
        completionMode={"const": "Indexed"},
        completions=COUNT,
        parallelism=COUNT,
        backoffLimitPerIndex=COUNT,
        template=closed("spec", spec=POD),
    ),
)


def test_the_kubernetes_template_is_an_indexed_job() -> None:
    """Each member is one that the API has, at its place; what is mounted is there, and SIGTERM has time enough."""
    job = yaml.safe_load(FILES["job.yaml"])
    jsonschema.Draft202012Validator(JOB).validate(job)
    pod = job["spec"]["template"]["spec"]
    mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] > GRACE_S
    misspelt = json.loads(json.dumps(job).replace("completionMode", "completionmode"))
    assert not jsonschema.Draft202012Validator(JOB).is_valid(misspelt)


def tools(folder: Path, model: str = "gpt-4.1-mini") -> Path:
    """Lay a folder for PATH in which `vllm`, which serves one model, is a stand-in, and `batchpond` the program."""
    folder.mkdir(exist_ok=True)
    vllm = VLLM.format(python=sys.executable, model=model, pid=os.fspath(folder / "pid"))
    pond = f'#!/bin/sh\nexec {sys.executable} -m batchpond "$@"\n'
    hostname = "#!/bin/sh\necho node-c\n"
    for name, script in (("vllm", vllm), ("batchpond", pond), ("hostname", hostname)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return folder


def check_templates_worker(made: Workers, words: list[str], variables: dict[str, str]) -> None:
    """Run what a template starts, be it on a machine of Python alone; the folder is answered, by who it says."""
    done = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(f"-{variables['AS']}-" in path.name for path in made.rig.inbox.iterdir())
    made.check_whole()


def test_what_the_slurm_template_starts_answers_a_folder(laid: Laid, tmp_path: Path) -> None:
    """Bash runs the script as SLURM does; it asks for a GPU, an array, and SIGTERM to the worker before the end."""
    path = tmp_path / "slurm.sh"
    path.write_text(FILES["slurm.sh"])
    assert subprocess.run(["/bin/bash", "-n", path], check=False).returncode == 0
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", path.read_text(), re.MULTILINE))
    assert {"array", "gres", "time", "requeue"} <= options.keys()
    assert options["signal"] == "B:TERM@60"
    assert "\nexec batchpond work " in path.read_text()  # so that the worker is who has the signal
    found = tools(tmp_path / "tools")
    variables = {"PATH": f"{found}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "3", "AS": "node-c-3"}
    with laid() as made:
        check_templates_worker(made, ["bash", str(path), str(made.rig.folder), "gpt-4.1-mini"], variables)


def test_what_the_kubernetes_template_starts_answers_a_folder(laid: Laid, tmp_path: Path) -> None:
    """The container's own words, with its variables and paths in their places."""
    (container,) = yaml.safe_load(FILES["job.yaml"])["spec"]["template"]["spec"]["containers"]
    found = tools(tmp_path / "tools")
    variables = {"PATH": f"{found}:{os.environ['PATH']}", "AS": "work-7"}
    with laid() as made:
        places = {"files": str(made.rig.folder), "$(POD)": "work-7", "Qwen/Qwen3-8B": "gpt-4.1-mini"}
        words = [places.get(word, word) for word in (*container["command"], *container["args"])]
        check_templates_worker(made, [sys.executable, *words[1:]], variables)


# --- other engines ----------------------------------------------------------------------------------------------


def command(folder: Path, fate: str) -> str:
    """Return an engine that is a command."""
    (folder / "engine.py").write_text(COMMAND)
    return f"command: {sys.executable} {folder / 'engine.py'} {{input}} {{output}} {fate}"


def test_a_command_for_each_part(laid: Laid, tmp_path: Path) -> None:
    """It reads a part's requests and writes rows; what it leaves out is asked again by a later run, and only that."""
    with laid() as made:
        code, said = made.run(engine=command(tmp_path, "short"))
        assert (code, len(made.rows())) == (1, 9), said
        assert "wrote no row for them" in said
        code, said = made.run(engine=command(tmp_path, "whole"))
        assert (code, "asked 3, answered 3" in said) == (0, True), said
        made.check_whole()


@pytest.mark.parametrize(
    ("fate", "n_rows", "why"), [("fails", 2, "ended with 1"), ("mixed", 0, "answers nothing that")]
)
def test_a_command_that_fails_ends_the_worker(laid: Laid, tmp_path: Path, fate: str, n_rows: int, why: str) -> None:
    """What it answered before is kept; a row of another request is never taken in."""
    with laid() as made:
        code, said = made.run(engine=command(tmp_path, fate))
        assert (code, len(made.rows()), why in said) == (1, n_rows, True), said
        assert made.run()[0] == 0
        made.check_whole()


def test_a_vllm_is_started_and_ended_with_the_work(
    small: FilesRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vllm serve MODEL` on a free port, for the model of the first batch; one that does not come up is an error.

    A program of that name and those arguments stands for it here; `tests/engine` asks the real one.
    """
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    for model, code in (("another", 1), ("gpt-4.1-mini", 0)):
        pid = tools(tmp_path / "tools", model) / "pid"
        with workers(tmp_path / model, small, SMALL) as made:
            done = made.run("--lease", "600", engine="vllm --enforce-eager")
            assert done[0] == code, done
            assert ("vllm did not come to serve gpt-4.1-mini" in done[1]) is (code == 1)
            if code == 0:
                made.check_whole()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
