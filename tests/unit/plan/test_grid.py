"""Requests: every combination once, bodies byte-identical to the provider module's own, ids by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond import ids
from batchpond.errors import StudyError
from batchpond.model import Mode, Role, Turn
from batchpond.plan.asks import Ask, asks
from batchpond.plan.blocks import AskBlocks, Block, Grid, Round, grid_blocks, plan_table, requests_table
from batchpond.plan.cells import (
    Cell,
    Dropped,
    Modules,
    canonical,
    config_json,
    make_model_configs,
    resolve_endpoint,
    version,
)
from batchpond.plan.items import Item, choose_pairs
from batchpond.plan.prompts import BYTES_PER_TOKEN, FRAME_TOKENS, Bodies, prompt_of
from batchpond.plan.rows import row_of_file
from batchpond.providers import registry
from batchpond.study.file import parse_study
from batchpond.study.spec import ItemsFrom, ItemsSpec, RowsSpec, Study
from batchpond.tasks.pairwise import PairwiseRule
from batchpond.tasks.templates import Template, text_of
from tests.rigs.toy_provider import CHAT, RESPONSES, ToyModule, modules

ITEMS = [Item("a", 'quote " and {SAMPLE_2}'), Item("b", "line\nfeed \u2028 \U0001f600"), Item("c", "\x00\x1f\\u0041")]
TEXT = "{TRAIT_NAME}: {TRAIT_DESCRIPTION}\n<{SAMPLE_1}>\n<{SAMPLE_2}>\n{ANSWER_FIRST}{ANSWER_SECOND}"
OWN = Template("own", TEXT)


def study(thinking: str = '["none", "low"]', extra: str = "", name: str = "s") -> Study:
    """Return a study of two templates, two rubrics and one model."""
    text = f"""\
study = "{name}"
rubrics = ["organization", "overall_quality"]
templates = ["plain", "concise"]
items = {{ path = "x.csv" }}
{extra}
[[models]]
provider = "toy"
model = "toy-1"
thinking = {thinking}
max_output_tokens = 50
parameters = {{ seed = 1 }}
"""
    return parse_study(text.encode(), "study.toml", Path())


class Made:
    """A study's cells and what is left out, and the rows that they make of `items`."""

    def __init__(self, found: Study, templates: list[Template], modules: Modules) -> None:
        self.stage = replace(found.stages[0], templates=tuple(templates))
        configs, dropped = make_model_configs(self.stage.models, modules, found.unsupported, found.source)
        self.place = Round(found.name, "v", 1, self.stage, configs)
        self.cells: list[Cell] = self.place.cells()
        self.dropped: list[Dropped] = dropped
        self.seed = found.seed

    def blocks(self, items: list[Item] = ITEMS, n_rows: int = 1_000) -> Iterator[Block]:
        """Yield all requests as the grid that they are."""
        rows = [row_of_file(item, self.stage) for item in items]
        pairs = choose_pairs([item.item_id for item in items], self.stage.pairs, self.seed)
        return grid_blocks(self.place, Grid(self.stage, rows, pairs), n_rows)

    def asked(self, items: list[Item] = ITEMS, n_rows: int = 1_000) -> Iterator[Block]:
        """Yield the same requests as asks one by one."""
        rows = [row_of_file(item, self.stage) for item in items]
        return AskBlocks(self.place, lambda _: None, n_rows).of(asks(self.stage, rows, self.seed))

    def rows(self, blocks: Iterable[Block] | None = None) -> list[dict[str, Any]]:
        """Return every row of `plan` with its request, in the order of blocks, which are those of the grid."""
        return [
            {**request, **row}
            for block in blocks or self.blocks()
            for request, row in zip(
                requests_table(block).to_pylist(), plan_table(self.place, block).to_pylist(), strict=True
            )
        ]


def plain(found: Study) -> list[Template]:
    """Return the templates of `study`."""
    return list(found.stages[0].templates)


def changed(found: Study, **changes: Any) -> Study:
    """Return a study whose stage says something else."""
    return replace(found, stages=(replace(found.stages[0], **changes),))


def test_cells_are_all_combinations_one_model_after_the_other() -> None:
    """Templates x rubrics x models x thinking, each with an id of its own."""
    found = study()
    cells = Made(found, plain(found), modules).cells
    dimensions = [(c.config.thinking, c.template.template_id, c.rubric.rubric_id) for c in cells]
    assert len(set(dimensions)) == len({cell.cell_id for cell in cells}) == len(cells) == 8
    assert [thinking for thinking, _, _ in dimensions] == ["none"] * 4 + ["low"] * 4
    assert [cell.number for cell in cells] == list(range(8))
    assert {cell.group for cell in cells} == {("toy", CHAT, "toy-1")}


def test_unsupported_combinations_are_refused_together() -> None:
    """The error names each of them with the module's reason."""
    extra = '[[models]]\nprovider = "toy"\nmodel = "toy-2"\nthinking = "high"\n'
    found = study('["high", "low"]', extra)
    with pytest.raises(StudyError) as caught:
        Made(found, plain(found), modules)
    assert "not accepted by their models (2)" in caught.value.message
    assert "toy/toy-1 with thinking 'high': toy-1 does not think that high" in caught.value.message
    assert "toy/toy-2 with thinking 'high'" in caught.value.message
    assert 'unsupported = "drop"' in (caught.value.hint or "")


def test_unsupported_combinations_are_dropped_and_listed_where_the_study_says_so() -> None:
    """The rest is asked; when nothing is left it is an error all the same."""
    found = study('["high", "low"]', 'grid = { unsupported = "drop" }')
    grid = Made(found, plain(found), modules)
    assert [(d.model, d.thinking) for d in grid.dropped] == [("toy-1", "high")]
    assert {cell.config.thinking for cell in grid.cells} == {"low"}
    found = study('["high"]', 'grid = { unsupported = "drop" }')
    with pytest.raises(StudyError, match="not accepted by their models"):
        Made(found, plain(found), modules)


def test_unknown_providers_and_endpoints_name_the_study_and_the_model() -> None:
    """The registry's own words, with where to look."""
    found = study()
    for change, message in (
        ({"provider": "opnai"}, r"study\.toml: models: toy-1: there is no provider 'opnai'"),
        ({"provider": "openai", "endpoint": "chut"}, r"study\.toml: models: toy-1: openai has no endpoint 'chut'"),
    ):
        model = replace(found.stages[0].models[0], **change)
        with pytest.raises(StudyError, match=message):
            Made(changed(found, models=(model,)), plain(found), registry.module)


def test_endpoints_are_meant_by_path_or_by_a_word_of_it() -> None:
    """`chat` and `responses` are enough; anything else lists what there is."""
    toy, model = ToyModule(), study().stages[0].models[0]

    def of(**changes: Any) -> str:
        return resolve_endpoint(replace(model, **changes), toy)

    assert of() == of(endpoint="chat") == of(endpoint=CHAT) == of(endpoint="chat", include_thoughts=True) == CHAT
    assert of(endpoint="responses") == of(endpoint=RESPONSES) == of(include_thoughts=True) == RESPONSES
    for wrong in ("v1", "embeddings", ""):
        with pytest.raises(StudyError, match="has no endpoint"):
            of(endpoint=wrong)


@pytest.mark.parametrize("is_odd", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.sampled_from(["{SAMPLE_1}", "{SAMPLE_2}", "{TRAIT_NAME}", "x", '"', "é\n", "{"]), max_size=8),
    one=st.text(min_size=1, max_size=30),
    two=st.text(min_size=1, max_size=30),
)
def test_spliced_bodies_are_the_modules_own(is_odd: bool, text: list[str], one: str, two: str) -> None:
    """For any template and texts the fast way gives the bytes of building each body anew."""
    made = Made(study('["low"]'), [Template("t", "".join(text))], lambda _: ToyModule(is_odd=is_odd))
    items = [Item("a", one), Item("b", two)]
    for cell in made.cells:
        assert (Bodies(cell.config).frame(cell.template) is None) == is_odd
    for blocks in (made.blocks(items), made.asked(items)):
        check_bodies(made, items, blocks)


def check_bodies(made: Made, items: list[Item], blocks: Iterable[Block]) -> None:
    """Each body is what the provider's module makes of the prompt that the template gives."""
    rows = {item.item_id: row_of_file(item, made.stage) for item in items}
    n_bodies = 0
    for block in blocks:
        table = block.asks.to_pylist()
        for place, asked, body in zip(block.cell_no.tolist(), table, block.bodies, strict=True):
            cell = block.cells[place]
            ask = Ask(cell.rubric, rows[asked["item_first"]], rows[asked["item_second"]])
            assert body == Bodies(cell.config).built(prompt_of(made.stage, cell.template, ask))
            n_bodies += 1
    assert n_bodies == len(made.cells) * len(items) * (len(items) - 1)


@pytest.mark.parametrize("endpoint", ["chat", "responses"])
@pytest.mark.parametrize("thinking", ["none", "low", "default"])
def test_openai_bodies_are_spliced(endpoint: str, thinking: str) -> None:
    """The provider that is used most takes the fast way, at both endpoints, with the same bytes."""
    found = study(f'["{thinking}"]')
    model = replace(found.stages[0].models[0], provider="openai", model="gpt-5.4-mini", endpoint=endpoint)
    made = Made(changed(found, models=(model,)), [OWN], registry.module)
    assert all(Bodies(cell.config).frame(cell.template) is not None for cell in made.cells)
    for blocks in (made.blocks(), made.asked()):
        check_bodies(made, ITEMS, blocks)


def test_a_body_that_depends_on_its_prompt_is_built_each_time() -> None:
    """A module may do what it likes with a prompt; requests then are slower, not wrong."""
    found = study('["low"]')
    made = Made(found, [OWN], lambda _: ToyModule(is_odd=True))
    for blocks in (made.blocks(), made.asked()):
        requests = made.rows(blocks)
        assert len(requests) == 2 * 3 * 2
        for request in requests:
            body = orjson.loads(request["body"])
            assert body["n_characters"] == len(body["messages"][0]["content"])


def test_every_request_is_planned_once_and_says_what_it_asks() -> None:
    """Slots count up; body, id, items, direction and repeat belong together."""
    found = study(extra="pairs = { repeats = 2 }")
    made = Made(found, [OWN], modules)
    requests = made.rows()
    assert [request["slot"] for request in requests] == list(range(len(made.cells) * 3 * 2 * 2))
    cells = {cell.cell_id: cell for cell in made.cells}
    texts = {item.item_id: item.text for item in ITEMS}
    for request in requests:
        cell = cells[request["cell_id"]]
        rubric = cell.rubric
        answers = "".join(found.stages[0].rule.values().values())
        shown = f"<{texts[request['item_first']]}>\n<{texts[request['item_second']]}>\n"
        prompt = f"{rubric.name}: {rubric.description}\n{shown}"
        body = orjson.loads(request["body"])
        assert body["messages"][0]["content"] == prompt + answers
        assert body["reasoning_effort"] == cell.config.thinking == request["thinking"]
        assert request["body"].encode() == canonical(body)
        name = ids.request_id("toy", CHAT, "toy-1", request["body"].encode(), request["repeat_no"])
        assert request["request_id"] == name
        size_bytes = len((prompt + answers).encode())
        assert request["estimated_input_tokens"] == -(-size_bytes // BYTES_PER_TOKEN) + FRAME_TOKENS
    asked = Counter(
        (r["cell_id"], frozenset((r["item_first"], r["item_second"])), r["direction"], r["repeat_no"]) for r in requests
    )
    assert set(asked.values()) == {1}
    assert len({r["request_id"] for r in requests}) == len(requests)
    forward = {(r["cell_id"], r["item_first"], r["item_second"]) for r in requests if r["direction"] == "forward"}
    reverse = {(r["cell_id"], r["item_second"], r["item_first"]) for r in requests if r["direction"] == "reverse"}
    assert forward == reverse


def test_blocks_are_the_same_whatever_their_size() -> None:
    """Where blocks are cut changes no row, be they of a grid or of asks."""
    found = study(extra="pairs = { repeats = 2 }")
    made = Made(found, plain(found), modules)
    for of in (made.blocks, made.asked):
        assert made.rows(of(n_rows=1_000)) == made.rows(of(n_rows=5))


def test_asks_one_by_one_are_the_rows_of_the_grid() -> None:
    """Whichever way pairs are written, the rows are the same but for their slots."""
    found = study()
    made = Made(found, [*plain(found), OWN], modules)
    grid, asked = (
        sorted(made.rows(blocks), key=lambda row: (row["cell_id"], row["item_first"], row["item_second"]))
        for blocks in (made.blocks(), made.asked())
    )
    assert [{**row, "slot": 0} for row in grid] == [{**row, "slot": 0} for row in asked]
    assert sorted(row["slot"] for row in asked) == list(range(len(grid)))


def test_cells_with_the_same_body_share_their_requests() -> None:
    """Two templates of one text are two cells that ask the same."""
    found = study('["low"]')
    by_template: dict[str, list[str]] = {}
    for request in Made(found, [OWN, replace(OWN, template_id="copy")], modules).rows():
        by_template.setdefault(request["template_id"], []).append(request["request_id"])
    assert by_template["own"] == by_template["copy"]


def test_the_version_follows_the_content_only() -> None:
    """Paths do not count; texts, settings, answers, templates and the wire do."""
    found = study()
    templates = plain(found)

    def of(one: Study, items: list[Item] = ITEMS, module: ToyModule | None = None) -> str:
        made = Made(one, templates, lambda _: module or ToyModule())
        return version(one, [(made.stage, made.place.configs, [row_of_file(item, made.stage) for item in items])])

    rows = RowsSpec(items=ItemsSpec(ItemsFrom.CSV, "elsewhere.csv"))
    moved = replace(changed(found, rows=rows), source="other.toml", base_path=Path("/"))
    assert of(moved) == of(found)
    others = [
        of(replace(found, seed=2)),
        of(changed(found, rule=PairwiseRule(first="A"))),
        of(study(name="t")),
        of(study('["none"]')),
        of(found, [*ITEMS[:2], Item("c", "changed")]),
        of(found, module=ToyModule(is_odd=True)),
        of(study(extra="budget = { max_cost_usd = 1 }")),
    ]
    assert len({of(found), *others}) == len(others) + 1
    assert "base_path" not in orjson.loads(config_json(found))
    assert orjson.loads(config_json(found))["retry"]["classes"] == ["transient", "expired"]


WAYS = {
    "openai": ("gpt-5.4-mini", "chat"),
    "openai responses": ("gpt-5.4-mini", "responses"),
    "anthropic": ("claude-haiku-4-5", None),
    "gemini": ("gemini-2.5-flash-lite", None),
    "vertex": ("gemini-2.5-flash-lite", None),
    "together": ("meta-llama/Llama-3.3-70B-Instruct-Turbo", None),
    "vllm": ("any", None),
    "ollama": ("llama3.2", None),
}
SPOKEN = ["{SAMPLE_1}", "{SAMPLE_2}", "{TRAIT_NAME}", "{ANSWER_FIRST}", '"', "é\n", "{"]


def made_of(way: str, template: Template) -> Made:
    """Return the cells of one template asked at a provider in one way."""
    found = study('["default"]')
    model, endpoint = WAYS[way]
    mode = Mode.LIVE if way in ("ollama", "vllm") else Mode.BATCH
    spec = replace(found.stages[0].models[0], provider=way.partition(" ")[0], model=model, endpoint=endpoint, mode=mode)
    return Made(changed(found, models=(replace(spec, parameters={}),)), [template], registry.module)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(SPOKEN), min_size=1, max_size=4).map("".join), min_size=1, max_size=6),
    has_system=st.booleans(),
    one=st.text(min_size=1, max_size=30),
)
def test_spliced_conversations_are_the_modules_own(way: str, texts: list[str], has_system: bool, one: str) -> None:
    """Whoever says what, and wherever a provider puts it; the fast way is taken everywhere."""
    roles = [Role.SYSTEM] * has_system + [Role.USER, Role.ASSISTANT] * len(texts)
    turns = [Turn(role, text) for role, text in zip(roles, texts, strict=False)]
    template = Template("t", text_of(turns))
    assert template.turns == tuple(Turn(turn.role, turn.text.strip("\n")) for turn in turns)
    items = [Item("a", one), Item("b", "[[system]]\nno\n[[user]]")]
    made = made_of(way, template)
    if way != "ollama":
        assert all(Bodies(cell.config).frame(template) is not None for cell in made.cells)
    for blocks in (made.blocks(items), made.asked(items)):
        check_bodies(made, items, blocks)


def test_the_size_of_a_conversation_is_that_of_all_turns() -> None:
    """Estimated alike by the grid and by single asks."""
    template = Template("t", "[[system]]\nBe fair about {TRAIT_NAME}.\n[[user]]\n{SAMPLE_1} {SAMPLE_2} {SAMPLE_1}")
    made = made_of("anthropic", template)
    one, other = (
        [n for block in blocks for n in block.estimated_input_tokens] for blocks in (made.blocks(), made.asked())
    )
    assert sorted(one) == sorted(other)
    assert max(one) > BYTES_PER_TOKEN + FRAME_TOKENS


def test_ollamas_context_holds_a_long_item_after_a_short_one() -> None:
    """Its bodies depend on the length of what is asked, which the first request does not show."""
    items = [Item("a", "short"), Item("b", "short too"), Item("c", "long " * 20_000)]
    made = made_of("ollama", OWN)
    for blocks in (made.blocks(items), made.asked(items)):
        check_bodies(made, items, blocks)
