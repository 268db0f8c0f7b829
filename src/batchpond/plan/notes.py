"""What a study's author should know before paying, in sentences; the same of every stage, whatever it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batchpond.lake.store import CONFIG
from batchpond.model import PricedModel
from batchpond.plan.drafts import Draft, StageDraft
from batchpond.plan.pairs import Pairs
from batchpond.providers import registry
from batchpond.study.prices import Prices
from batchpond.study.spec import Order, PairsSpec
from batchpond.tasks.pairwise import PairwiseRule


def caveats(draft: Draft) -> tuple[str, ...]:
    """Return what providers say of themselves and of the models, each once."""
    configs = (config for stage in draft.stages for config in stage.configs)
    found = [
        f"{config.spec.provider}: {caveat}"
        for config in configs
        for caveat in registry.caveats(config.module, config.spec.model, config.spec.mode)
    ]
    return tuple(dict.fromkeys(found))


def notes(draft: Draft, prices: Prices) -> tuple[str, ...]:
    """Return what the plan itself gives reason to say, each once."""
    found: list[str] = []
    for stage in draft.stages:
        about = f"stage {stage.stage.name}: " if len(draft.stages) > 1 else ""
        found += [about + note for note in _of_answers(stage)]
    found += _of_prices(draft.stages, prices)
    for stage in draft.stages:
        about = f"stage {stage.stage.name}: " if len(draft.stages) > 1 else ""
        found += [about + note for note in (*_of_pairs(stage.stage.pairs, stage.pairs), *_of_configs(stage))]
    found += [
        f"stage {stage.stage.name} asks in up to {stage.stage.pairs.adaptive.rounds} rounds, each chosen by the answers"
        " before it, and stops earlier where more would not help"
        for stage in draft.stages
        if stage.stage.pairs.adaptive is not None
    ]
    return tuple(dict.fromkeys(found))


def _of_answers(draft: StageDraft) -> Iterator[str]:
    rule = draft.stage.rule
    if not isinstance(rule, PairwiseRule):
        return
    for template in draft.stage.templates:
        has_answers = all(f"{{{name}}}" in template.text for name in rule.values())
        if not has_answers and not all(answer in template.text for answer in rule.values().values()):
            yield (
                f"template {template.template_id} does not spell out the two answers; a reply counts only if it "
                f"holds exactly one of {rule.answer_first} and {rule.answer_second}"
            )


def _of_prices(drafts: Sequence[StageDraft], prices: Prices) -> Iterator[str]:
    specs = (spec for draft in drafts for spec in draft.stage.models)
    for asked in dict.fromkeys(PricedModel(spec.provider, spec.model, spec.mode) for spec in specs):
        if prices.unit(asked) is None:
            yield (
                f"no {asked.mode} price is known for {asked.provider}/{asked.model}, so its cost is unknown; "
                f'set it under [prices."{asked.override}"] in the lake\'s {CONFIG}'
            )
    if any(config.settings.max_output_tokens is None for draft in drafts for config in draft.configs):
        yield "without max_output_tokens the worst cost is unknown"


def _of_pairs(spec: PairsSpec, pairs: Pairs | None) -> Iterator[str]:
    if pairs is None:
        return
    is_adaptive = spec.adaptive is not None
    n_wanted, n_orders = spec.count or 0, 2 if is_adaptive else 1
    if n_wanted > pairs.n_possible * n_orders:
        end = "each is asked at most once in each order" if is_adaptive else "all are asked"
        yield f"pairs.count is {n_wanted:,}, but there are only {pairs.n_possible:,} pairs; {end}"
    if spec.order is Order.FIXED and spec.reverse < 1:
        yield "with a fixed order and not every pair reversed, position and item cannot be told apart"


def _of_configs(draft: StageDraft) -> Iterator[str]:
    for config in {config.fingerprint: config for config in draft.configs}.values():
        if config.left_out:
            names = ", ".join(config.left_out)
            spec = config.spec
            yield f"{spec.provider}/{spec.model} at thinking {config.thinking} does not take {names}; left out"
