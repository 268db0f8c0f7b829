"""The frame of the command line: streams, exit codes, lazy imports, safety of what is shown."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from batchpond.cli.frame import COMMANDS
from batchpond.cli.init import COMMENTED, EXAMPLES
from batchpond.demo import SIMULATED_KEY, environment
from batchpond.lake.store import Store
from batchpond.providers import registry
from batchpond_sim.host import server
from tests.rigs.forked import run_text

HEAVY = ("duckdb", "polars", "pyarrow", "httpx", "numpy", "msgspec")
PROGRAM = [sys.executable, "-m", "batchpond"]


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process that is forked; how it starts by itself is tried where PROGRAM is."""
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR", "BATCHPOND_LAKE"}}
    return run_text(*arguments, env=kept | environment, cwd=cwd)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An empty lake."""
    return Store.init(tmp_path / "lake").path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell_is_one_that_it_reads(shell: str) -> None:
    """As `batchpond guide commands` writes it; of a shell that is not installed, that it names the program."""
    done = subprocess.run(
        PROGRAM,
        env=os.environ | {"_BATCHPOND_COMPLETE": f"{shell}_source"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"batchpond" in done.stdout
    if path := shutil.which(shell):
        read = subprocess.run([path, "-n"], input=done.stdout, capture_output=True, timeout=60, check=False)
        assert (read.returncode, read.stderr) == (0, b"")


@pytest.mark.parametrize(
    "code",
    [
        "main(['--help'])",
        "main(['--version'])",
        "[main([name, '--help']) for name in COMMANDS]",
        "os.environ['_BATCHPOND_COMPLETE']='bash_complete'; os.environ['COMP_WORDS']='batchpond s'; "
        "os.environ['COMP_CWORD']='1'; main([])",
    ],
    ids=["help", "version", "every-help", "completion"],
)
def test_help_imports_nothing_heavy(code: str) -> None:
    """Help, version and completion start without the engines and the HTTP client."""
    script = (
        "import os, sys\nfrom batchpond.cli import main\nfrom batchpond.cli.frame import COMMANDS\n"
        f"try:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join(name for name in {HEAVY} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_commands_are_listed_in_flow_order() -> None:
    """`--help` tells the flow."""
    shown = run("--help").stdout.partition("Begin:\n")[2]
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2] != " "] == list(
        COMMANDS
    )


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["query", "--help"], ["import", "judgments", "-h"], ["import", "rows", "-h"], ["export", "-h"]],
)
def test_help_fits_80_columns(arguments: list[str]) -> None:
    """Help is readable in a narrow terminal; only examples may be longer."""
    help_text = run(*arguments, COLUMNS="80").stdout.partition("Examples:")[0]
    assert max(map(len, help_text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quer"], "did you mean `query`?"),
        (["query"], "Missing argument"),
        (["query", "select 1", "--nope"], "No such option"),
        (["query", "select 1", "--json", "--format", "csv"], "different things"),
        (["--lake", "nowhere", "query", "select 1"], "is not a lake"),
    ],
)
def test_usage_errors_leave_stdout_empty(arguments: list[str], message: str, tmp_path: Path) -> None:
    """A wrong call ends with 2, says what is wrong on stderr, and prints no data."""
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_errors_are_json_when_json_was_asked(tmp_path: Path) -> None:
    """A program that asked for JSON gets its error as JSON, on stderr."""
    done = run("query", "select 1", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)
    assert error.keys() == {"error", "exit_code", "message", "hint"}
    assert (error["error"], error["exit_code"]) == ("usage", 2)


def test_errors_name_the_next_step(tmp_path: Path) -> None:
    """People get an error line and a hint line."""
    lines = run("query", "select 1", cwd=tmp_path).stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")


def test_damaged_marker_is_5(lake: Path) -> None:
    """A damaged lake has its own exit code."""
    (lake / "batchpond.json").write_text("{")
    assert run("--lake", str(lake), "query", "select 1").returncode == 5


def test_lake_is_taken_from_the_option_before_the_environment(lake: Path, tmp_path: Path) -> None:
    """--lake wins over BATCHPOND_LAKE, before or after the command."""
    arguments = ["query", "select 1 as a", "--json"]
    assert run(*arguments, BATCHPOND_LAKE=str(lake)).returncode == 0
    assert run(*arguments, BATCHPOND_LAKE=str(tmp_path / "no")).returncode == 2
    assert run(*arguments, "--lake", str(lake), BATCHPOND_LAKE=str(tmp_path / "no")).returncode == 0
    assert run("--lake", str(lake), *arguments, BATCHPOND_LAKE=str(tmp_path / "no")).returncode == 0


def test_a_reader_that_leaves_ends_quietly(lake: Path) -> None:
    """`| head -1` gets its line; nothing complains, whatever is left."""
    command = f"{' '.join(PROGRAM)} --lake {lake} query 'select range as n from range(300000)' --format csv | head -1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("n\n", "")


def wait_for_work(pid: int) -> None:
    """Wait until a process has spent a second of CPU beyond its start: the query runs."""
    ticks = os.sysconf("SC_CLK_TCK")
    deadline_s = time.monotonic() + 60
    spent_at_start = None
    while time.monotonic() < deadline_s:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent_s = (int(fields[11]) + int(fields[12])) / ticks
        if spent_at_start is None and "_duckdb" in Path(f"/proc/{pid}/maps").read_text():
            spent_at_start = spent_s
        if spent_at_start is not None and spent_s > spent_at_start + 1.5:
            return
        time.sleep(0.05)
    raise TimeoutError("the query never started")


def test_interrupt_is_130_and_says_what_is_safe(lake: Path) -> None:
    """Ctrl-C ends with 130, no traceback, and the command that goes on."""
    slow = "select count(*) from range(10000000) a, range(10000000) b"
    with subprocess.Popen(
        [*PROGRAM, "--lake", str(lake), "query", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for_work(process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert "batchpond sync" in err
    assert "Traceback" not in err


def test_unexpected_errors_are_short_unless_verbose(lake: Path) -> None:
    """A defect is one line and a hint; `-v` shows where it is."""
    script = (
        "import sys\nfrom batchpond.lake.store import Store\n"
        "def broken(*a, **k): raise RuntimeError('kaputt\\x1b[31m')\n"
        "Store.open = broken\nfrom batchpond.cli import main\nsys.exit(main(sys.argv[1:]))"
    )

    def call(*flags: str) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", script, *flags, "query", "select 1"]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)

    plain, verbose = call(), call("-v")
    assert (plain.returncode, plain.stdout) == (1, "")
    assert "unexpected RuntimeError: kaputt\\x1b[31m" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in verbose.stderr


def on_terminal(*arguments: str, columns: int, typed: str = "", **environment: str) -> str:
    """Run the program with a pseudo-terminal as stdin, stdout and stderr; return what it shows to who typed that."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(  # noqa: S606
            sys.executable, [*PROGRAM, *arguments],
            os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"} | environment,
        )  # fmt: skip
    os.write(master, typed.encode())
    shown = b""
    try:
        while chunk := os.read(master, 65_536):
            shown += chunk
    except OSError:
        pass  # Linux reports the closed terminal as EIO
    os.waitpid(pid, 0)
    os.close(master)
    return shown.decode()


def test_terminal_output_obeys_no_data(lake: Path) -> None:
    """A value with escape sequences changes nothing on a real terminal."""
    shown = on_terminal("--lake", str(lake), "query", "select chr(27) || '[2Jx' as a, chr(8238) as b", columns=80)
    assert "\\x1b[2Jx" in shown
    assert "\\u202e" in shown
    assert "\u202e" not in shown
    assert "\x1b[2J" not in shown


def test_what_is_said_on_a_terminal_is_folded_between_words(lake: Path) -> None:
    keys = {name: "" for name in os.environ if name.endswith("_API_KEY")}
    shown = on_terminal("--lake", str(lake), "adopt", "nope", columns=80, NO_COLOR="1", **keys).splitlines()
    assert shown[0].startswith("error: no batch of this lake is called nope")
    assert len(shown) > 2
    assert max(map(len, shown)) <= 80
    assert not any(line.count("`") % 2 for line in shown)  # what is to be typed stays whole


def test_tables_of_plan_and_submit_fit_eighty_columns(tmp_path: Path) -> None:
    """Long names are cut on a terminal, where a table would wrap; in a pipe nothing is."""
    assert run("init", "--example", "stages", str(tmp_path)).returncode == 0
    study = tmp_path / "study.toml"
    long = "gpt-4.1-mini-of-a-name-that-is-longer-than-any-column-has-room-for"
    study.write_text(study.read_text().replace('"gpt-4.1-mini"', f'"{long}"'))
    lake = ("--lake", str(tmp_path / "lake"))
    for arguments in (("plan", str(study)), ("submit", "answers", "--dry-run")):
        shown = on_terminal(*lake, *arguments, columns=80, NO_COLOR="1").replace("\r", "")
        tables = [line for line in shown.splitlines() if "  " in line.strip()]
        assert len(tables) >= 3
        assert max(map(len, tables)) <= 80, arguments
        assert long in run(*lake, *arguments).stdout


def test_near_names_are_offered_to_queries(lake: Path) -> None:
    """A column, a table and a view that are nearly there."""
    for sql, near in (
        ("select studdy from results", "study"), ("select r.* from reslts r", "results"),
        ("metric_consistncy", "metric_consistency"),
    ):  # fmt: skip
        done = run("--lake", str(lake), "query", sql)
        assert (done.returncode, f"did you mean '{near}'?" in done.stderr) == (2, True), sql
    far = run("--lake", str(lake), "query", "select zzzzzzzz from results")
    assert "`batchpond views` lists what can be queried" in far.stderr


def test_numbers_in_a_pipe_are_printed_to_nine_digits(lake: Path) -> None:
    """Of the defects of people: 0.45290199999999947 as tab-separated values; CSV and JSON stay exact."""
    query = ("--lake", str(lake), "query", "select 0.1::double + 0.2 as a, 7.0::double as b, 12345678.25::double as c")
    assert run(*query).stdout.splitlines()[1] == "0.3\t7.0\t12345678.2"
    assert "0.30000000000000004" in run(*query, "--format", "csv").stdout


def test_an_error_that_needs_a_paragraph_names_its_guide(lake: Path) -> None:
    """A lake of a newer version: what the hint says stays, and the guide follows."""
    marker = lake / "batchpond.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 999}))
    done = run("--lake", str(lake), "status")
    assert done.returncode == 5
    assert "; `batchpond guide trouble` says more" in done.stderr


def test_color_obeys_no_color(lake: Path) -> None:
    """A terminal gets bold heads, unless NO_COLOR or --color never says otherwise."""
    arguments = ["--lake", str(lake), "query", "select 1 as a"]
    assert "\x1b[1m" in on_terminal(*arguments, columns=80)
    assert "\x1b" not in on_terminal(*arguments, columns=80, NO_COLOR="1")
    assert "\x1b" not in on_terminal("--color", "never", *arguments, columns=80)


def test_init_writes_what_plan_reads_and_overwrites_nothing(tmp_path: Path) -> None:
    """init twice leaves the first files as the user changed them."""
    first = run("init", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    names = ["study.toml", "samples.csv", ".gitignore"]
    assert json.loads(first.stdout)["written"] == names
    assert run("plan", cwd=tmp_path).returncode == 0
    (tmp_path / "study.toml").write_text("mine")
    second = json.loads(run("init", "--json", cwd=tmp_path).stdout)
    assert (second["written"], second["kept"]) == ([], names)
    assert (tmp_path / "study.toml").read_text() == "mine"
    assert (tmp_path / "lake" / "batchpond.json").exists()


def test_init_asks_on_a_terminal_which_study_it_shall_be(tmp_path: Path) -> None:
    """Where nobody can be asked it is the first; an example by its name is not asked for."""
    shown = on_terminal("init", str(tmp_path / "asked"), columns=100, typed="live\n")
    assert "Which study" in shown
    assert 'mode = "live"' in (tmp_path / "asked" / "study.toml").read_text()
    assert "Which study" not in on_terminal("init", str(tmp_path / "b"), "--example", "stages", columns=100)


def test_every_example_is_planned_as_it_is_written(tmp_path: Path) -> None:
    """The first command after `init` works, whatever was chosen, and its prompts are whole; commented ones explain."""
    for example in EXAMPLES:
        folder = tmp_path / example
        made = run("init", "--example", example, str(folder), cwd=tmp_path)
        assert made.returncode == 0
        planned = json.loads(run("plan", "--json", cwd=folder).stdout)
        assert planned["n_to_ask"] > 0
        assert not [note for note in planned["notes"] if "template" in note]
        keys = [registry.module(model["provider"]).DESCRIPTOR.key_env[0] for model in planned["models"]]
        assert all(key in made.stderr for key in keys)
        assert not any("batch" in caveat for caveat in planned["caveats"] if example == "live")
    assert "to ask: 132 one by one;" in run("plan", cwd=tmp_path / "live").stdout
    for example in COMMENTED:
        folder = tmp_path / f"{example}-commented"
        assert run("init", "--example", example, "--commented", str(folder), cwd=tmp_path).returncode == 0
        assert run("plan", cwd=folder).returncode == 0
    refused = run("init", "--commented", "--example", "live", str(tmp_path / "no"), cwd=tmp_path)
    assert (refused.returncode, "pairwise, stages" in refused.stderr) == (2, True)


def test_what_later_rounds_are_foreseen_to_cost_is_in_the_total_that_is_asked_about(tmp_path: Path) -> None:
    """Of one model as of several, and nobody reads it as the price of what is sent now."""
    for example, now in (("adaptive", "24 requests"), ("stages", "24 requests")):
        assert run("init", "--example", example, str(tmp_path / example), cwd=tmp_path).returncode == 0
        planned = json.loads(run("plan", "--json", cwd=tmp_path / example).stdout)
        told = run("submit", planned["study"], "--dry-run", cwd=tmp_path / example).stdout.splitlines()
        (place,) = [
            number for number, line in enumerate(told) if line.startswith("later rounds, a forecast: expected $")
        ]
        assert told[place + 1].startswith(f"in all {now} and what follows from the answers: expected $")
        assert f"expected ${planned['cost']['expected_usd']:.4f}, " in told[place + 1]


def test_a_program_runs_beside_the_simulator_and_ends_as_it_ends(tmp_path: Path) -> None:
    """The whole way of a newcomer: `init`, and one command that asks simulated providers, in less than a usual wait."""
    assert run("init", "--example", "compliance", cwd=tmp_path).returncode == 0
    program = [*PROGRAM[1:], "--lake", "trial", "run", "--yes", "--timeout", "50", "--json"]
    ran = run("simulate", "--latency", "0.1", "0.5", "--", sys.executable, *program, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    rows = run("--lake", "trial", "query", "select distinct origin, request_state from results", cwd=tmp_path)
    assert rows.stdout.split() == ["origin", "request_state", "simulated", "answered"]
    assert run("simulate", "--", sys.executable, "-c", "raise SystemExit(7)", cwd=tmp_path).returncode == 7
    missing = run("simulate", "--", "no-such-program", cwd=tmp_path)
    assert (missing.returncode, "no-such-program cannot be run" in missing.stderr) == (2, True)


def test_what_is_submitted_beside_one_simulator_is_collected_beside_the_next(tmp_path: Path) -> None:
    """Batches are known by their address, so that of a kept state stays; where it is taken, a free one does."""
    run("init", cwd=tmp_path)
    program = ("simulate", "--latency", "0.1", "0.3", "--", sys.executable, "-m", "batchpond")
    run("plan", "study.toml", cwd=tmp_path)
    assert run(*program, "submit", "essays", "--yes", cwd=tmp_path).returncode == 0
    done = run(*program, "sync", "--watch", "--timeout", "60", cwd=tmp_path)
    assert (done.returncode, "132 lines downloaded" in done.stdout + done.stderr) == (0, True), done.stderr
    port = int((tmp_path / "simulator" / "port.txt").read_text())
    with socket.create_server(("127.0.0.1", port)):
        assert run("simulate", "--", sys.executable, "-c", "", cwd=tmp_path).returncode == 0
    assert int((tmp_path / "simulator" / "port.txt").read_text()) != port
    for cut in ("", "4", "99999", "\udcff"):
        (tmp_path / "simulator" / "port.txt").write_bytes(cut.encode("utf-8", "surrogateescape"))
        assert run("simulate", "--", sys.executable, "-c", "", cwd=tmp_path).returncode == 0, cut


def test_beside_a_simulator_no_provider_is_asked_in_earnest() -> None:
    """Those of live calls alone, and servers of one's own, had their real addresses, and were paid."""
    with server.running() as simulator:
        found = environment(simulator)
        for descriptor in registry.all_descriptors():
            assert found[descriptor.base_url_env].startswith(f"{simulator.root_url}/"), descriptor.name
            assert {found[name] for name in descriptor.key_env[:1]} <= {SIMULATED_KEY}, descriptor.name


def test_init_prints_the_schema_of_study_files_and_writes_nothing(tmp_path: Path) -> None:
    """A JSON Schema on stdout, for editors; no lake, no study."""
    printed = json.loads(run("init", "--schema", cwd=tmp_path).stdout)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"StagesFile", "PairwiseFile", "ModelSpec"} <= set(printed["$defs"])
    assert list(tmp_path.iterdir()) == []


def test_templates_are_listed_and_shown(tmp_path: Path) -> None:
    """Templates by task with their hashes; one shown is the text itself."""
    listed = json.loads(run("templates", "--json", cwd=tmp_path).stdout)
    assert len({row["template_hash"] for row in listed}) == len(listed)
    assert [row["task"] for row in listed].count("pairwise") == 5
    ranking = json.loads(run("templates", "--task", "ranking", "--json", cwd=tmp_path).stdout)
    assert ranking == [row for row in listed if row["task"] == "ranking"]
    for row in (listed[0], ranking[0]):
        assert run("templates", row["template_id"]).stdout == row["text"] + "\n"
    rubrics = json.loads(run("templates", "--rubrics", "--json").stdout)
    assert {"overall_quality", "organization"} <= {row["rubric_id"] for row in rubrics}


def test_an_unknown_template_is_an_error_with_a_suggestion() -> None:
    """A misspelt name gets a did-you-mean."""
    done = run("templates", "plane")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'plain'?" in done.stderr
    done = run("templates", "--task", "rankings")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'ranking'?" in done.stderr


def test_query_reads_standard_input_and_view_names(lake: Path) -> None:
    """SQL may come from a pipe, and a bare name is the whole view."""
    done = subprocess.run(
        [*PROGRAM, "--lake", str(lake), "query", "-", "--json"],
        input="select 1 as a", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout) == [{"a": 1}]
    assert run("--lake", str(lake), "query", "events", "--json").stdout == "[]\n"


def test_views_ddl_runs_in_plain_duckdb(lake: Path) -> None:
    """The printed script makes every view in a DuckDB that knows nothing of batchpond."""
    names = {row["view"] for row in json.loads(run("views", "--json", "--lake", str(lake)).stdout)}
    with duckdb.connect() as connection:
        connection.execute(run("views", "--ddl", "--lake", str(lake)).stdout)
        made = {name for (name,) in connection.execute("select view_name from duckdb_views()").fetchall()}
    assert names <= made


def test_doctor_is_well_on_a_new_lake_and_names_damage(lake: Path) -> None:
    """A good lake is 0; a bad file is 5 with its name; --fix brings the views back."""
    assert run("doctor", "--fix", "--lake", str(lake)).returncode == 0
    rows = json.loads(run("doctor", "--json", "--lake", str(lake), TOGETHER_API_KEY="tk-1").stdout)
    keys = {row["message"].partition(":")[0]: row["level"] for row in rows if row["check"] == "keys"}
    assert (keys["openai"], keys["together"]) == ("-", "ok")
    (lake / "events").mkdir(exist_ok=True)
    (lake / "events" / "bad.parquet").write_bytes(b"PAR1nonsense")
    done = run("doctor", "--json", "--lake", str(lake))
    assert done.returncode == 5
    errors = [row for row in json.loads(done.stdout) if row["level"] == "error"]
    assert any("events/bad.parquet" in row["message"] for row in errors)


def test_a_look_at_where_things_stand_loads_neither_arrow_nor_numpy_nor_pandas(lake: Path) -> None:
    """Each takes longer to load than all else that `status` and `audit` do; pandas is refused even to who asks."""
    script = (
        "import sys\nfrom batchpond.cli import main, spare\nspare()\n"
        f"for look in ('status', 'audit'):\n    main(['--lake', {os.fspath(lake)!r}, look, '--json'])\n"
        "found = {'pyarrow', 'numpy', 'pandas', 'polars'} & set(sys.modules)\n"
        "try:\n    import pandas\nexcept ModuleNotFoundError:\n    pass\nelse:\n    found.add('pandas')\n"
        "sys.exit(' '.join(sorted(found)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
