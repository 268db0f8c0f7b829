"""What a study says that its models would not do as it is written: told by `plan`, before anything is asked.

Only `plan` looks. A study that stands in a lake goes on as it was planned, and an answered question of a model that has
ended since is still an answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from batchpond.errors import StudyError
from batchpond.lake.store import Store
from batchpond.lake.tables import connect
from batchpond.model import Mode
from batchpond.plan.cells import ModelConfig
from batchpond.providers import registry
from batchpond.providers.shared import known
from batchpond.providers.shared.dialect import SCHEMA
from batchpond.study.spec import THINKING_DEFAULT, ModelSpec, Unsupported
from batchpond.study.typed import did_you_mean

WISHES: Final = frozenset({SCHEMA, "include_thoughts"})
"""Settings that ask for something where it can be had; without it the same question is asked."""
_HINT: Final = 'change it, or write unsupported = "drop" under [grid] to go on so; it is told before you are asked'
_NOUNS: Final = {"whole": "a whole number", "text": "a string", "switch": "true or false"}
_ASKED: Final = "SELECT 1 FROM plan WHERE provider = $1 AND request_model = $2 LIMIT 1"


def check(configs: Sequence[ModelConfig], unsupported: Unsupported, source: str) -> None:
    """Raise StudyError for parameters that no endpoint of the provider has, and for what its models do not take."""
    for config in {id(config.spec): config for config in configs}.values():
        _check_parameters(config, source)
    if unsupported is Unsupported.REFUSE:
        found = dict.fromkeys(problem for config in configs for problem in not_taken(config))
        if found:
            lines = "".join(f"\n  {problem}" for problem in found)
            raise StudyError(f"{source}: not everything would be asked as it is written:{lines}", hint=_HINT)


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
    elsewhere = [name for name in spec.parameters if _is_of_another_endpoint(name, config)]
    if elsewhere and not spec.parameters_unchecked:
        names = ", ".join(elsewhere)
        yield f"{named(spec)} at {config.settings.endpoint} does not take the parameter {names}: sent as written"


def notes(configs: Sequence[ModelConfig]) -> tuple[str, ...]:
    """Return what to know about a study's models before money is spent, each once, by how much it may hurt."""
    found = [_unknown(config) for config in configs]
    found += [problem for config in configs for problem in not_taken(config)]
    found += [_ends(config.spec) for config in configs]
    batched = (config for config in configs if config.spec.mode is not Mode.FILES)
    found += [f"{one.spec.provider}: {caveat}" for one in batched for caveat in one.module.caveats(one.spec.model)]
    return tuple(dict.fromkeys(note for note in found if note))


def named(spec: ModelSpec) -> str:
    """Return how messages call a model."""
    return f"{spec.provider}/{spec.model}"


def _unknown(config: ModelConfig) -> str | None:
    near = config.module.DESCRIPTOR.nearest(config.spec.model)
    if near is None:
        return None
    tables = (one for one in registry.descriptors() if one.nearest("") is not None)
    owner = next((one.name for one in tables if one.nearest(config.spec.model) is None), None)
    question = f"did you mean {' or '.join(near)}?" if near else "no name there is like it"
    question = f"it is one of {owner}'s" if owner else question
    return f"{named(config.spec)} is not among the models of {config.spec.provider} that batchpond knows: {question}"


def _ends(spec: ModelSpec) -> str | None:
    day = known.day_of(spec.model, known.of(spec.provider).ends)
    return day and f"{named(spec)} is announced to be served until {day}; requests that have not run by then fail"


def check_served(store: Store, configs: Iterable[ModelConfig], source: str) -> None:
    """Raise StudyError for models that their providers have switched off, unless this lake has asked them before.

    The days are the providers' own: where a variable leads to another address, or the requests go to files, they say
    nothing.
    """
    gone: dict[str, None] = {}
    for config in configs:
        spec = config.spec
        day = known.day_of(spec.model, known.of(spec.provider).ended)
        is_elsewhere = spec.mode is Mode.FILES or os.environ.get(config.module.DESCRIPTOR.base_url_env, "").strip()
        if day and not is_elsewhere and not _is_asked(store, spec):
            gone[f"{named(spec)} is no longer served since {day}"] = None
    if gone:
        raise StudyError(
            f"{source}: models that have ended would only fail:" + "".join(f"\n  {problem}" for problem in gone),
            hint="name other models; at an address of your own, which the provider's variable names, any model goes",
        )


def _is_asked(store: Store, spec: ModelSpec) -> bool:
    with connect(store, ["plan"]) as connection:
        return connection.execute(_ASKED, [spec.provider, spec.model]).fetchone() is not None


def _check_parameters(config: ModelConfig, source: str) -> None:
    spec, data = config.spec, known.of(config.spec.provider)
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
        if kinds and not known.fits(value, kinds):
            nouns = " or ".join(_NOUNS.get(kind, f"a {kind}") for kind in kinds)
            raise StudyError(f"{where} is {value!r}, not {nouns}", hint=meant)


def _is_of_another_endpoint(name: str, config: ModelConfig) -> bool:
    data = known.of(config.spec.provider)
    return data.kinds(name, config.settings.endpoint) == () and bool(data.endpoints(name))
