"""What a study of stages will ask and cost in all: the first stages as they stand, the others foreseen from them.

Nothing of a later stage is known but how many rows the stages before it hand on, how long those may be, and
what its author expects of a choice (`expected_share`) and of an answer (`expected_output_tokens`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batchpond.plan.cells import ModelConfig, length_of
from batchpond.plan.prompts import BYTES_PER_TOKEN, tokens_of
from batchpond.plan.rounds import adaptive
from batchpond.study.prices import NOTHING, Estimate, Prices, total
from batchpond.study.spec import Kept, StageSpec
from batchpond.tasks.base import About, Gives
from batchpond.tasks.inputs import InputsRule


@dataclass(frozen=True, slots=True)
class Known:
    """A stage, and where it waits for nothing: its rows and asks, with their mean sizes in bytes.

    `ask_bytes` of one that waits is the size of its prompts without the texts of its rows; `shown_bytes` are of what
    each of its models is shown in one, as if its tokens were text. `n_pairs` are compared, whatever by; with
    `has_rubrics` each row belongs to a rubric, and where it waits, to `n_listed` if that is not 0.
    """

    stage: StageSpec
    configs: Sequence[ModelConfig]
    n_rows: int = 0
    row_bytes: float = 0.0
    n_asks: int = 0
    n_pairs: float = 0.0
    ask_bytes: float = 0.0
    has_rubrics: bool = False
    shown_bytes: Sequence[float] = ()
    n_listed: float = 0.0

    def tokens(self, asked: _Asked) -> list[int]:
        """Return how many tokens the prompt of a request has for each of its models."""
        shown = self.shown_bytes or [0.0] * len(self.configs)
        return [tokens_of(round(asked.size_bytes + n_bytes)) for n_bytes in shown]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a stage will ask in all; `now` is what its first round costs, `later` what rounds after that do."""

    stage: StageSpec
    n_requests: int
    input_tokens: int
    now: Estimate
    later: Estimate


@dataclass(frozen=True, slots=True)
class _Flow:
    """What a stage hands on: rows with their texts, inputs and conversations, of so many candidates on each unit.

    Each candidate has `n_outputs` on a unit. `n_pairs` is how many a stage of pairs asked about, in whatever direction:
    a stage of pairs after it asks of those. With `has_rubrics` a row belongs to one; else it was judged by all of
    `judged_by`, and is again by those of them that a stage has.
    """

    n_rows: float = 0.0
    n_pairs: float = 0.0
    text_bytes: float = 0.0
    input_bytes: float = 0.0
    n_candidates: int = 1
    has_rubrics: bool = False
    talk_bytes: float = 0.0
    n_statements: float = 0.0
    judged_by: frozenset[str] = frozenset()
    n_outputs: int = 1


@dataclass(frozen=True, slots=True)
class _Asked:
    """Requests of one kind: how many each model gets, and of how many bytes."""

    n_per_way: float
    size_bytes: float


def forecast(known: Sequence[Known], prices: Prices) -> list[Forecast]:
    """Return what each stage of a study will ask and cost, in order.

    Where questions are made in rounds, the worst that may come is that every round is needed.
    """
    found = _foretold(known, prices, is_worst=False)
    if all(one.stage.keeps is None for one in known):
        return found
    worst = _foretold(known, prices, is_worst=True)
    return [
        replace(
            one, later=replace(one.later, worst_usd=other.later.worst_usd, known_worst_usd=other.later.known_worst_usd)
        )
        for one, other in zip(found, worst, strict=True)
    ]


def _foretold(known: Sequence[Known], prices: Prices, *, is_worst: bool) -> list[Forecast]:
    flows: dict[str, _Flow] = {}
    found = []
    for one in known:
        stage = one.stage
        own = _Flow(one.n_rows, text_bytes=one.row_bytes, has_rubrics=one.has_rubrics, n_statements=len(stage.rubrics))
        flow = _chosen(stage, flows, is_worst=is_worst) if stage.waits else own
        if one.n_listed:
            flow = replace(flow, n_rows=flow.n_rows * one.n_listed, has_rubrics=True)
        first = _first(one, flow)
        later = _later_rounds(stage, first, flow.n_rows)
        is_shared = bool(stage.tactics) and not stage.is_cold_start  # the first answer, which each tactic goes on from
        asked = replace(first, n_per_way=first.n_per_way / len(stage.tactics)) if is_shared else first
        found.append(_forecast(one, asked, later, prices))
        flows[stage.name] = _handed_on(one, flow, first)
    return found


def _chosen(stage: StageSpec, flows: Mapping[str, _Flow], *, is_worst: bool) -> _Flow:
    """Return the rows that a waiting stage is foreseen to get; of SQL, as many as all it waits for hand on."""
    if stage.rows.kept is not None:
        return _kept(stage.rows.kept, flows, is_worst=is_worst)
    if stage.rows.lacking is not None:
        return _lacking(stage.rows.lacking, flows[stage.rows.stage or ""], flows, is_worst=is_worst)
    if stage.rows.stage is not None:
        source = flows[stage.rows.stage]
        is_part = stage.rows.where is not None
    else:
        shown = {asked for asked, _ in stage.answers.values()}
        sources = [flows[name] for name in stage.rows.after if name not in shown or shown >= {*stage.rows.after}]
        n_rows, n_pairs = sum(flow.n_rows for flow in sources), sum(flow.n_pairs for flow in sources)
        source = replace(max(sources, key=lambda flow: flow.n_rows), n_rows=n_rows, n_pairs=n_pairs)
        is_part = True
    share = stage.expected_share if is_part else 1.0
    return replace(source, n_rows=source.n_rows * share, n_pairs=source.n_pairs * share)


def _kept(kept: Kept, flows: Mapping[str, _Flow], *, is_worst: bool) -> _Flow:
    """Return the questions that are kept: as many of each statement as are wanted, or rated low enough."""
    questions = flows[kept.questions[0]]
    n_made = sum(flows[name].n_rows for name in kept.questions)
    n_low = n_made * (1.0 if is_worst else kept.expected_share)
    return replace(questions, n_rows=min(n_low, kept.per_statement * questions.n_statements))


def _lacking(kept: Kept, scenarios: _Flow, flows: Mapping[str, _Flow], *, is_worst: bool) -> _Flow:
    """Return the scenarios of a further round: none, where the rounds before are foreseen to give enough."""
    n_low = sum(flows[name].n_rows for name in kept.questions) * kept.expected_share
    n_statements = max(1.0, scenarios.n_statements)
    if not is_worst and n_low >= kept.per_statement * n_statements:
        return replace(scenarios, n_rows=0.0)
    return replace(scenarios, n_rows=n_statements * math.ceil(kept.promising * scenarios.n_rows / n_statements))


def _first(one: Known, flow: _Flow) -> _Asked:
    stage = one.stage
    n_templates = len(stage.templates)
    if not stage.waits:
        return _Asked(one.n_asks * n_templates * stage.repeats, one.ask_bytes)
    is_once = flow.has_rubrics or stage.rule.parts
    n_same = len(flow.judged_by.intersection(rubric.rubric_id for rubric in stage.rubrics))
    n_rubrics = len(stage.tactics) or (1 if is_once else n_same or max(1, len(stage.rubrics)))
    n_shown = 2 if stage.about.is_of_two else stage.rule.size
    has_talk = any("{CONVERSATION}" in template.text for template in stage.templates)
    size = one.ask_bytes + n_shown * flow.text_bytes + flow.input_bytes + (flow.talk_bytes if has_talk else 0)
    return _Asked(_n_of_rows(stage, flow) * n_rubrics * n_templates * stage.repeats, size)


def _n_of_rows(stage: StageSpec, flow: _Flow) -> float:
    match stage.about:
        case About.CANDIDATES:
            return 2 * _n_pairs(flow, stage)
        case About.LIST:
            n_units = flow.n_rows / max(1, flow.n_candidates * flow.n_outputs)
            return n_units * (stage.pairs.count or 1) * (1 + stage.pairs.reverse)
        case About.PAIR:
            if stage.pairs.adaptive is not None:
                return sum(adaptive.n_of_rounds(round(flow.n_rows), stage.pairs)[:1])
            n_pairs, n_reverse = _n_pairs(flow, stage), stage.pairs.n_reverse
            return n_pairs + (n_pairs * stage.pairs.reverse if n_reverse is None else n_reverse)
        case About.ROW | About.TALK:
            return flow.n_rows


def _n_pairs(flow: _Flow, stage: StageSpec) -> float:
    if flow.n_pairs:
        return flow.n_pairs
    if stage.about is About.CANDIDATES:
        n_others = max(0, flow.n_candidates - 1) * flow.n_outputs
        return flow.n_rows * n_others / (2 if stage.pairs.baseline is None else max(1, flow.n_candidates))
    possible = flow.n_rows * max(0.0, flow.n_rows - 1) / 2
    if stage.pairs.count is not None:
        return min(possible, stage.pairs.count)
    return possible * (1.0 if stage.pairs.share is None else stage.pairs.share)


def _later_rounds(stage: StageSpec, first: _Asked, n_rows: float) -> list[_Asked]:
    """Return the turns after the first, each showing all earlier ones, or all rounds of adaptive pairs."""
    if stage.pairs.adaptive is not None:
        sizes = adaptive.n_of_rounds(round(n_rows), stage.pairs)
        return [_Asked(first.n_per_way * size / sizes[0], first.size_bytes) for size in sizes[1:]]
    if stage.about is not About.TALK:
        return []
    grown = _turn_bytes(stage)
    return [_Asked(first.n_per_way, first.size_bytes + turn_no * grown) for turn_no in range(1, stage.turns + 1)]


def _turn_bytes(stage: StageSpec) -> float:
    """Return by how much a conversation grows with each turn: an answer and a phrase."""
    phrases = [len(phrase.encode()) for tactic in stage.tactics for phrase in tactic.phrases]
    return length_of(stage).tokens * BYTES_PER_TOKEN + sum(phrases) / len(phrases)


def _forecast(one: Known, first: _Asked, later: Sequence[_Asked], prices: Prices) -> Forecast:
    rounds = [first, *later]
    now = _cost(one, first, prices)
    rest = total(_cost(one, asked, prices) for asked in later)
    if one.stage.waits:
        now, rest = NOTHING, now + rest
    return Forecast(
        one.stage,
        round(sum(asked.n_per_way for asked in rounds) * len(one.configs)),
        round(sum(asked.n_per_way * sum(one.tokens(asked)) for asked in rounds)),
        now,
        rest,
    )


def _cost(one: Known, asked: _Asked, prices: Prices) -> Estimate:
    n, length = round(asked.n_per_way), length_of(one.stage)
    return total(
        prices.estimate(
            config.spec.priced, config.thinking, config.settings.max_output_tokens, n, n * n_tokens, length,
            cache=config.spec.cache,
        ) for config, n_tokens in zip(one.configs, one.tokens(asked), strict=True)
    )  # fmt: skip


def _handed_on(one: Known, flow: _Flow, first: _Asked) -> _Flow:
    stage = one.stage
    if isinstance(stage.rule, InputsRule):
        n_entries = first.n_per_way * len(one.configs) * stage.rule.count
        entry_bytes = length_of(stage).tokens * BYTES_PER_TOKEN / stage.rule.count
        return _Flow(n_entries, 0.0, entry_bytes, 0.0, 1, flow.has_rubrics, n_statements=flow.n_statements)
    if stage.gives is not Gives.OUTPUT:
        n_pairs = 0.0
        if stage.about.is_of_two and stage.pairs.adaptive is None:
            n_pairs = _n_pairs(flow, stage) if stage.waits else one.n_pairs
        judged_by = frozenset(rubric.rubric_id for rubric in stage.rubrics)
        return replace(flow, n_pairs=n_pairs, judged_by=judged_by)
    n_candidates = len(one.configs) * len(stage.templates)
    text_bytes = length_of(stage).tokens * BYTES_PER_TOKEN
    has_rubrics = stage.about is About.TALK or bool(stage.rubrics) or flow.has_rubrics
    n_rows = first.n_per_way * len(one.configs) * (1 + stage.turns)
    talk_bytes = flow.text_bytes + _turn_bytes(stage) * (1 + stage.turns / 2) if stage.about is About.TALK else 0.0
    found = _Flow(n_rows, 0.0, text_bytes, flow.text_bytes, n_candidates, has_rubrics, talk_bytes)
    return replace(found, n_outputs=stage.repeats)
