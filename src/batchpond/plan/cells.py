"""A study as stages: its ways to ask, every model at every thinking level that it takes; its cells; its version.

A pairwise study is one stage, however its file says it. What was planned keeps its names: a file without rounds and
tiers has a version of its own kind, and a version whose rows carry the stage in their cells' ids goes on with those.

What a study says that its models would not do as it is written is told by `plan` alone, before anything is asked: a
study that stands in a lake goes on as it was planned, and the answer of a model that has ended since is still one.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from batchpond import ids
from batchpond.errors import StudyError, UsageError
from batchpond.lake.jsonl import Embedded
from batchpond.lake.store import Store
from batchpond.lake.tables import rows
from batchpond.model import Media, Mode
from batchpond.providers import base, registry
from batchpond.providers.shared.dialect import SCHEMA, Dialect, ModelSettings
from batchpond.study.prices import LENGTHS, NOTHING, Estimate, Length, Prices, nearest
from batchpond.study.spec import (
    THINKING_DEFAULT,
    ModelSpec,
    StageSpec,
    Study,
    Unsupported,
    pairs_config,
    to_config,
    to_json,
    without_checks,
)
from batchpond.study.typed import did_you_mean
from batchpond.tasks.base import Gives
from batchpond.tasks.inputs import InputsRule
from batchpond.tasks.templates import Rubric, Template
from batchpond.text import plain

if TYPE_CHECKING:
    from batchpond.plan.items import Item
    from batchpond.plan.rows import SourceRow, SourceRows

_PROBE: Final = "batchpond probe"

Modules = Callable[[str], Dialect]
"""Gives the module of a provider by name; raises UsageError for an unknown one."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model at one thinking level, ready to build bodies; `left_out` are settings the model forbids."""

    spec: ModelSpec
    thinking: str
    settings: ModelSettings
    module: Dialect
    left_out: tuple[str, ...]
    fingerprint: str

    def dimensions(self, template_id: str, rubric_id: str) -> tuple[str, str, str, str, str]:
        """Return what tells a cell from the others of a stage."""
        return template_id, rubric_id, self.spec.provider, self.spec.model, self.thinking


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of template, rubric and way to ask; `number` counts from 0."""

    number: int
    cell_id: str
    template: Template
    rubric: Rubric
    config: ModelConfig
    parser_id: str

    @property
    def group(self) -> tuple[str, str, str]:
        """Provider, endpoint and model: what makes the requests of two cells comparable."""
        settings = self.config.settings
        return self.config.spec.provider, settings.endpoint, settings.request_model


@dataclass(frozen=True, slots=True)
class Dropped:
    """A combination that its model does not accept, in the provider module's words."""

    provider: str
    model: str
    thinking: str
    reason: str


def cell_id(study: str, dimensions: Iterable[str], stage: str | None = None) -> str:
    """Return the id of a cell; `dimensions` are template, rubric, provider, model and thinking.

    `stage` is given where a study is more than pairs of a file's items.
    """
    return ids.digest("cell", study, *dimensions, *(() if stage is None else (stage,)))


class OutputSchema(dict[str, Any]):
    """A JSON schema whose keys keep their order in a body, since models answer in it: the reason before the verdict."""


def make_model_configs(
    models: Sequence[ModelSpec], modules: Modules, unsupported: Unsupported, source: str,
    output_schema: Mapping[str, Any] | None = None, *, logprobs: bool = False,
) -> tuple[list[ModelConfig], list[Dropped]]:  # fmt: skip
    """Return every model at every thinking level that it accepts, and those that it does not.

    Answers are held to `output_schema` where model and provider can do so; the others have it in `left_out`. A model
    that does not give `logprobs` where they are wanted is not accepted.

    Raises StudyError that names the latter, unless they may be dropped and something is left.
    """
    configs: list[ModelConfig] = []
    dropped: list[Dropped] = []
    for spec in models:
        try:
            module = modules(spec.provider)
            endpoint = resolve_endpoint(spec, module)
        except UsageError as error:
            raise StudyError(f"{source}: models: {spec.model}: {error.message}", hint=error.hint) from None
        for thinking in spec.thinking:
            config = _model_config(spec, thinking, module, endpoint, output_schema, logprobs=logprobs)
            if isinstance(config, ModelConfig):
                configs.append(config)
            else:
                dropped.append(config)
    if dropped and (unsupported is Unsupported.REFUSE or not configs):
        lines = "".join(f"\n  {d.provider}/{d.model} with thinking {d.thinking!r}: {d.reason}" for d in dropped)
        raise StudyError(
            f"{source}: not accepted by their models ({len(dropped)}):{lines}",
            hint='change them, or write unsupported = "drop" under [grid] to leave them out'
            if unsupported is Unsupported.REFUSE
            else "nothing would be left to ask",
        )
    return configs, dropped


def _model_config(
    spec: ModelSpec, thinking: str, module: Dialect, endpoint: str, output_schema: Mapping[str, Any] | None, *,
    logprobs: bool,
) -> ModelConfig | Dropped:  # fmt: skip
    has_schema = output_schema is not None and module.DESCRIPTOR.takes_schema
    settings = ModelSettings(
        request_model=spec.model,
        endpoint=endpoint,
        thinking=None if thinking == THINKING_DEFAULT else thinking,
        include_thoughts=spec.include_thoughts,
        max_output_tokens=spec.max_output_tokens,
        temperature=spec.temperature,
        parameters=spec.parameters or None,
        output_schema=OutputSchema(output_schema or {}) if has_schema else None,
        logprobs=logprobs,
    )
    try:
        built = module.build_body(_PROBE, settings)
    except UsageError as error:
        return Dropped(spec.provider, spec.model, thinking, error.message)
    fingerprint = ids.digest("way", spec.provider, endpoint, spec.model, canonical(built.body))
    if settings.max_output_tokens is None:
        settings = dataclasses.replace(settings, max_output_tokens=built.max_output_tokens)
    left_out = built.dropped if has_schema or output_schema is None else (*built.dropped, SCHEMA)
    return ModelConfig(spec, thinking, settings, module, left_out, fingerprint)


def resolve_endpoint(spec: ModelSpec, module: Dialect) -> str:
    """Return the endpoint meant by a path (`/v1/responses`), a word of one (`responses`), or nothing."""
    written, descriptor = spec.endpoint, module.DESCRIPTOR
    if spec.mode not in descriptor.modes:
        hint = f"its modes: {', '.join(map(str, descriptor.modes))}"
        raise StudyError(f"{spec.provider} has no mode {str(spec.mode)!r}", hint=hint)
    if spec.cache not in {None, *descriptor.cache_marks}:
        hint = f"it keeps for: {', '.join(descriptor.cache_marks) or 'nothing; leave `cache` out'}"
        raise StudyError(f"{spec.provider} keeps nothing that is marked for {spec.cache!r}", hint=hint)
    if written is None:
        return module.endpoint_for(spec.model, spec.include_thoughts, spec.temperature)
    if written in descriptor.endpoints:
        return written
    found = [endpoint for endpoint in descriptor.endpoints if written.strip("/") in endpoint.split("/")]
    if len(found) != 1:
        raise StudyError(
            f"{descriptor.name} has no endpoint {written!r}", hint=f"one of: {', '.join(descriptor.endpoints)}"
        )
    return found[0]


def canonical(body: object) -> bytes:
    """Return the one JSON text of a body: sorted keys but in an output schema, no white space, UTF-8."""
    return orjson.dumps(body, _as_it_stands, orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS)


def _as_it_stands(value: object) -> object:
    match value:
        case OutputSchema():
            return orjson.Fragment(orjson.dumps(dict(value)))
        case Embedded():
            return orjson.Fragment(orjson.dumps(str(value))[:-1] + value.mark + b'"')
        case str() | bytes():
            return plain(value)
        case _:
            raise TypeError(f"{type(value).__name__} is nothing that JSON can say")


_WORDS: Final = {kind: re.compile(rf"(?i)\b(?:{'|'.join(words)})\b") for kind, words in LENGTHS["words"].items()}


def length_of(stage: StageSpec, template: Template | None = None) -> Length:
    """Return how long an answer, to a template or whichever, is expected to be: as its study says, or is asked for."""
    if stage.expected_output_tokens is not None:
        return Length(stage.expected_output_tokens, is_whole=True)
    found = [_tokens(stage, one.text) for one in ([template] if template else stage.templates)]
    return Length(round(sum(found) / len(found)))


def _tokens(stage: StageSpec, text: str) -> int:
    tokens: Mapping[str, int] = LENGTHS["tokens"]
    if stage.gives is Gives.OUTPUT:
        return tokens["output"]
    if isinstance(stage.rule, InputsRule):
        return stage.rule.count * tokens["entry"]
    asked = _WORDS["not_asked"].sub("exactly", text)
    is_in_steps, is_why, is_brief = (_WORDS[kind].search(asked) is not None for kind in ("in_steps", "why", "brief"))
    form = stage.rule.values().get("ANSWER_FORMAT", "")
    if n_fields := form.count('":') + form.count("</") or text.count('":'):
        n_texts = len(re.findall("sentences(?:: a text)?|a text|a list of", form)) if form else int(is_why)
        steps = tokens["prose"] if is_in_steps and not is_brief else 0
        return n_fields * tokens["key"] + n_texts * tokens["reason"] + steps
    if is_in_steps or is_why:
        return tokens["verdict"] + tokens["prose" if is_in_steps else "reason"]
    return tokens["verdict" if is_brief else "unsaid"]


def _config(study: Study) -> dict[str, Any]:
    """Return pairs that are asked all at once as plain values, without where on this machine they were read from."""
    values = dataclasses.asdict(study)
    (stage,) = values.pop("stages")
    del values["source"], values["base_path"], values["words"]
    stage["pairs"] = pairs_config(stage["pairs"])
    if study.claims is None:
        del values["claims"]
    of_stage = {name: stage[name] for name in ("rubrics", "models", "pairs")}
    # A word for ties and log probabilities came later.
    answer = {name: value for name, value in stage["rule"].items() if value not in (None, False)}
    return without_checks({**values, **of_stage, "items": stage["rows"]["items"], "answer": answer})


def config_json(study: Study, later: Mapping[str, Estimate] | None = None) -> str:
    """Return a study as `studies.config` keeps it, with how long its answers and how dear its later rounds will be.

    `later` is that cost by stage, of those that have any.
    """
    lengths = [(one.name, t.template_id, *length_of(one, t)) for one in study.stages for t in one.templates]
    if not study.has_rounds:
        return orjson.dumps({**_config(study), "lengths": lengths}, option=orjson.OPT_SORT_KEYS).decode("utf-8")
    costs = {
        name: {**dataclasses.asdict(cost), "n_rounds": study.stage(name).n_later_rounds}
        for name, cost in (later or {}).items()
        if cost != NOTHING
    }
    return orjson.dumps({**to_config(study), "later": costs, "lengths": lengths}).decode("utf-8")


def version(study: Study, stages: Sequence[tuple[StageSpec, Sequence[ModelConfig], SourceRows]]) -> str:
    """Return the digest of all that decides what is asked, and of the study's other settings.

    `stages` are the study's, with the ways to ask and the rows of those that wait for nothing. Where texts were read
    from does not count, what they say does; neither do comments, layout or the order of rows. How a provider's bodies
    are built counts, so a changed body is a changed version.
    """
    if not study.has_rounds:
        ((stage, configs, rows),) = stages
        return _pairwise_version(study, stage, configs, rows)
    from batchpond.plan.rows import SpilledRows  # `submit`, which reads configurations only, loads none of it

    known: list[str] = []
    for stage, configs, rows in stages:
        known += [config.fingerprint for config in configs]
        if isinstance(rows, SpilledRows):
            known += sorted(rows.hashes())
        else:
            known += sorted(_placed(row, stage).item_hash for row in rows)
    return ids.digest("staged study", to_json(study), known=known)


def _pairwise_version(study: Study, stage: StageSpec, configs: Sequence[ModelConfig], rows: SourceRows) -> str:
    settings = _config(study)
    del settings["items"], settings["templates"]
    parts = [orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)]
    parts += [row.item_hash.encode() for row in rows]
    parts += [template.template_hash.encode() for template in stage.templates]
    parts += [
        f"{cell_id(study.name, one.dimensions(template.template_id, rubric.rubric_id))} {one.fingerprint}".encode()
        for one in configs
        for template in stage.templates
        for rubric in stage.rubrics
    ]
    return ids.digest("study", *parts)


def _placed(row: SourceRow, stage: StageSpec) -> Item:
    """Return a row as the item that a version knows: the column of its tier gone, the tier said by that name."""
    if row.of_file is None:
        return row.item()
    more = {name: value for name, value in row.more.items() if name != stage.rows.columns.get("tier")}
    return row._replace(more=more, of_file=None).item()


_TOLD_MAX: Final = 20
# Parameters that prices depend on, and their values at which they are the usual ones.
_PRICED_APART: Final = {"service_tier": {None, "auto", "default", "standard_only"}, "inference_geo": {None, "global"}}
WISHES: Final = frozenset({SCHEMA, "include_thoughts"})
"""Settings that ask for something where it can be had; without it the same question is asked."""
_HINT: Final = 'change it, or write unsupported = "drop" under [grid] to go on so; it is told before you are asked'
_NOUNS: Final = {"whole": "a whole number", "text": "a string", "switch": "true or false"}
_ASKED: Final = "SELECT 1 FROM plan WHERE provider = $1 AND request_model = $2 LIMIT 1"


def check_meant(configs: Sequence[ModelConfig], unsupported: Unsupported, source: str) -> None:
    """Raise StudyError for parameters that no endpoint of the provider has, and for what its models do not take."""
    for config in {id(config.spec): config for config in configs}.values():
        _check_parameters(config, source)
    if unsupported is Unsupported.REFUSE:
        found = dict.fromkeys(problem for config in configs for problem in not_taken(config))
        if found:
            lines = "".join(f"\n  {problem}" for problem in found)
            raise StudyError(f"{source}: not everything would be asked as it is written:{lines}", hint=_HINT)


def check_shown(configs: Iterable[ModelConfig], media: Sequence[Media], source: str) -> None:
    """Raise StudyError for models that cannot be shown what a study shows."""
    ways = {(one.spec.priced, one.settings.endpoint): (one.spec, one.module.sight) for one in configs}.items()
    refusals = ((spec, sight.refusal(spec.model, one, at)) for (_, at), (spec, sight) in ways for one in media)
    found = dict.fromkeys(f"\n  {named(spec)} {why}" for spec, why in refusals if why)
    if found:
        text = f"{source}: not every model can be shown what the templates show:{''.join(list(found)[:_TOLD_MAX])}"
        hint = "`media_max_px` makes pictures smaller; `batchpond guide images` says which provider takes what"
        raise StudyError(text, hint=hint)


def not_taken(config: ModelConfig) -> Iterator[str]:
    """Yield what a study says of a model that the model does not take, or that nobody knows whether it does."""
    spec = config.spec
    at = "" if config.thinking == THINKING_DEFAULT else f" at thinking {config.thinking}"
    is_known = config.module.DESCRIPTOR.nearest(spec.model) is None
    lost = [name for name in config.left_out if name not in WISHES]
    if is_known and lost:
        yield f"{named(spec)}{at} does not take {', '.join(lost)}: left out"
    if not is_known:
        asked = {"thinking": bool(at), "temperature": spec.temperature is not None, **dict.fromkeys(lost, True)}
        names = ", ".join(name for name, is_asked in asked.items() if is_asked)
        what = f"{', '.join(lost)} left out" if lost else "sent as written"
        if names:
            yield f"{named(spec)}{at} is not a known model, so nobody knows whether it takes {names}: {what}"
    data, endpoint = base.known(spec.provider), config.settings.endpoint
    elsewhere = [name for name in spec.parameters if data.kinds(name, endpoint) == () and data.endpoints(name)]
    if elsewhere and not spec.parameters_unchecked:
        yield f"{named(spec)} at {endpoint} does not take the parameter {', '.join(elsewhere)}: sent as written"


def model_notes(configs: Sequence[ModelConfig], prices: Prices) -> tuple[str, ...]:
    """Return what to know about a study's models before money is spent, each once, by how much it may hurt."""
    found = [_unknown(config, prices) for config in configs]
    found += [problem for config in configs for problem in not_taken(config)]
    found += [_priced_apart(config.spec) for config in configs]
    found += [_ends(config.spec) for config in configs]
    batched = (config for config in configs if config.spec.mode is not Mode.FILES)
    found += [f"{one.spec.provider}: {caveat}" for one in batched for caveat in one.module.caveats(one.spec.model)]
    return tuple(dict.fromkeys(note for note in found if note))


def named(spec: ModelSpec) -> str:
    """Return how messages call a model."""
    return f"{spec.provider}/{spec.model}"


def _unknown(config: ModelConfig, prices: Prices) -> str | None:
    spec, near = config.spec, config.module.DESCRIPTOR.nearest(config.spec.model)
    if near is None:  # a family's prefix says nothing of what follows it, a price does
        like = None if spec.mode is Mode.FILES or prices.unit(spec.priced) else nearest(spec.priced)
        about = f"{named(spec)} is not among the models of {spec.provider} whose price is known"
        return like and f"{about}: did you mean {like}?"
    tables = (one for one in registry.descriptors() if one.nearest("") is not None)
    owner = next((one.name for one in tables if one.nearest(config.spec.model) is None), None)
    question = f"did you mean {' or '.join(near)}?" if near else "no name there is like it"
    question = f"it is one of {owner}'s" if owner else question
    return f"{named(config.spec)} is not among the models of {config.spec.provider} that batchpond knows: {question}"


def _priced_apart(spec: ModelSpec) -> str | None:
    names = [name for name, usual in _PRICED_APART.items() if spec.parameters.get(name) not in usual]
    what = f'costs and budgets take the usual one; [prices."{named(spec)}"] of config.toml sets another'
    return f"{named(spec)}: what a token costs may depend on {', '.join(names)}: {what}" if names else None


def _ends(spec: ModelSpec) -> str | None:
    day = base.day_of(spec.model, base.known(spec.provider).ends)
    return day and f"{named(spec)} is announced to be served until {day}; requests that have not run by then fail"


def check_served(store: Store, configs: Iterable[ModelConfig], source: str) -> None:
    """Raise StudyError for models that their providers have switched off, unless this lake has asked them before.

    The days are the providers' own: where a variable leads to another address, or the requests go to files, they say
    nothing.
    """
    gone: dict[str, None] = {}
    for config in configs:
        spec = config.spec
        day = base.day_of(spec.model, base.known(spec.provider).ended)
        is_elsewhere = spec.mode is Mode.FILES or os.environ.get(config.module.DESCRIPTOR.base_url_env, "").strip()
        if day and not is_elsewhere and not rows(store, ["plan"], _ASKED, [spec.provider, spec.model]):
            gone[f"{named(spec)} is no longer served since {day}"] = None
    if gone:
        raise StudyError(
            f"{source}: models that have ended would only fail:" + "".join(f"\n  {problem}" for problem in gone),
            hint="name other models; at an address of your own, which the provider's variable names, any model goes",
        )


def _check_parameters(config: ModelConfig, source: str) -> None:
    spec, data = config.spec, base.known(config.spec.provider)
    fields: Mapping[str, object] = data.fields.get(config.settings.endpoint.partition("@")[0], {})
    if spec.parameters_unchecked or not fields:
        return
    for name, value in spec.parameters.items():
        kinds = data.kinds(name, config.settings.endpoint)
        where = f"{source}: models: {named(spec)}: parameters.{name}"
        meant = "`parameters_unchecked = true` beside the parameters sends them as they are"
        if not data.endpoints(name):
            question = did_you_mean(name, list(fields))
            raise StudyError(
                f"{where} is no parameter of {spec.provider} at {config.settings.endpoint}",
                hint=f"{question} {meant}" if question else meant,
            )
        if kinds and not base.fits(value, kinds):
            nouns = " or ".join(_NOUNS.get(kind, f"a {kind}") for kind in kinds)
            raise StudyError(f"{where} is {value!r}, not {nouns}", hint=meant)
