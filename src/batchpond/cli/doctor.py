"""`doctor`, `keys`, `prices`: is everything here well, where do calls go, and what do they cost, as whom says it?"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from batchpond import __version__
from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode, UsageError
from batchpond.model import Mode, PricedModel

if TYPE_CHECKING:
    from batchpond.doctor import Finding
    from batchpond.providers.http.keys import KeyRow

ENGINES = ("duckdb", "polars", "pyarrow", "httpx")


@pond_command("doctor")
def command(invocation: Invocation, is_deep: bool, is_fix: bool, lost: tuple[str, ...], form: Format) -> ExitCode:
    """Check versions, keys, the lake's files, views, rights and disk, and what waits for you."""
    from batchpond import doctor
    from batchpond.lake import manifest

    store = invocation.store()
    if lost:
        with store.lock("doctor --lost"):
            for name in lost:
                manifest.give_up(store, name)
    if is_fix or lost:
        doctor.rebuild_lens(store)
    findings = [*_environment(), *doctor.examine(store, is_deep=is_deep)]
    rows = [(f.check, f.level, f.message, f.hint) for f in findings]
    if form is Format.TABLE:
        output.text("\n".join(_lines(findings)))
    else:
        output.records(("check", "level", "message", "hint"), rows, form)
    return doctor.worst(findings)


def _environment() -> list[Finding]:
    from importlib.metadata import version

    from batchpond.doctor import Finding, Level
    from batchpond.providers import registry
    from batchpond.providers.http.keys import listing

    engines = ", ".join(f"{name} {version(name)}" for name in ENGINES)
    versions = f"batchpond {__version__}, Python {platform.python_version()}, {engines}"
    return [Finding("versions", Level.OK, versions), *map(_key_finding, listing(registry.descriptors(), os.environ))]


def _key_finding(row: KeyRow) -> Finding:
    from batchpond.doctor import Finding, Level

    if row.problem is not None:
        return Finding("keys", Level.ERROR, row.problem, "`batchpond keys` shows all of them", ExitCode.ACCESS)
    where = f"{row.key_env} is set" if row.is_found else f"{row.key_env} is not set"
    level = Level.OK if row.is_found else Level.NONE
    return Finding("keys", level, f"{row.provider}: {where}, calls go to {row.base_url_host}")


def _lines(findings: list[Finding]) -> list[str]:
    lines = []
    for finding in findings:
        lines.append(f"{finding.level.value:<8} {finding.check:<12} {finding.message}")
        if finding.hint:
            lines.append(f"{'':<21} {finding.hint}")
    return lines


NAMES = ("provider", "variable", "is_found", "host", "scope", "problem")


@pond_command("keys")
def keys(invocation: Invocation, provider: str | None, is_check: bool, form: Format) -> ExitCode:
    """Show for each provider which variable holds its key and which host it goes to."""
    from batchpond.providers import registry
    from batchpond.providers.http.keys import listing

    if provider is not None:
        if is_check:
            raise UsageError("--check looks at every provider whose key is set", hint="leave out the provider's name")
        output.records(("about", "fact"), _facts(provider), form, has_color=invocation.color_stdout())
        return ExitCode.DONE
    if is_check:
        checks = list(registry.check_keys())
        found = [(check.row, check.scope, check.problem if check.row.is_found else None) for check in checks]
    else:
        found = [(row, None, None) for row in listing(registry.all_descriptors(), os.environ)]
    rows = [
        (row.provider, row.key_env, row.is_found, row.base_url_host, scope, problem or row.problem)
        for row, scope, problem in found
    ]
    output.records(NAMES, rows, form, has_color=invocation.color_stdout())
    if not any(row.is_found for row, _, _ in found):
        invocation.diagnostics.note("no key is set", hint="export one, or run `batchpond simulate`, which takes any")
    return ExitCode.ACCESS if any(row[-1] for row in rows) else ExitCode.DONE


def _facts(provider: str) -> list[tuple[str, str]]:
    from batchpond.providers import base, registry

    descriptor, data = registry.module(provider).DESCRIPTOR, base.known(provider)
    facts = [("mind", caveat) for caveat in descriptor.caveats + descriptor.batch_caveats]
    facts += [("models", f"{model}: announced to be served until {day}") for model, day in data.ends.items()]
    facts += [("models", f"{model}: no longer served since {day}") for model, day in data.ended.items()]
    return facts + [("source", note) for note in descriptor.notes]


PRICE_NAMES = ("provider", "model", "mode", "above_tokens", "input_usd", "cached_input_usd", "output_usd", "source")
_PLANNED = "SELECT DISTINCT provider, request_model, mode FROM plan_current ORDER BY ALL"


@pond_command("prices")
def prices(invocation: Invocation, of: str | None, form: Format) -> None:
    """Show what is known of prices, in USD per million tokens: in batches and live, and who says so."""
    from batchpond.lake.store import CONFIG
    from batchpond.providers import registry
    from batchpond.study.prices import Prices, data_said, nearest, remarks

    path = invocation.lake_path / CONFIG
    prices = Prices.of_lake(path)
    is_listing = of is not None and "/" not in of
    asked = _of_provider(of) if of else _planned(invocation)
    found = {one: prices.unit(one) for one in asked}
    rows: list[tuple[object, ...]] = []
    for one, unit in found.items():
        if unit is not None:
            rows += [(*one, t.above_tokens, t.input_usd, t.cached_usd, t.output_usd, unit.source) for t in unit.tiers]
        elif not is_listing:
            rows.append((*one, None, None, None, None, None))
    output.records(PRICE_NAMES, rows, form, has_color=invocation.color_stdout())
    for remark in remarks(asked[0]) if of and not is_listing else ():
        invocation.diagnostics.note(remark)
    unknown = [one for one, unit in found.items() if unit is None and not is_listing]
    if is_listing and not rows:
        is_free = registry.module(str(of)).DESCRIPTOR.is_free
        told = "asks a server of your own: nothing is billed" if is_free else "has no model whose price is known"
        invocation.diagnostics.note(f"{of} {told}", hint=f"`batchpond keys {of}` says what is known of it")
        return
    for lacking in unknown:
        text = f"no {lacking.mode} price is known for {lacking.provider}/{lacking.model}"
        invocation.diagnostics.note(f"{text}: did you mean {near}?" if (near := nearest(lacking)) else text)
    name = f"{of}/MODEL" if is_listing else next((one.override for one in (*unknown, *asked)), "PROVIDER/MODEL")
    invocation.diagnostics.note(
        f"prices come from {path} and {data_said()}",
        hint=f'to set one, write input and output under [prices."{name}"] in {path}: `batchpond guide costs`',
    )


def _of_provider(of: str) -> list[PricedModel]:
    """Return the ways to ask of `provider` or `provider/model`; raises UsageError for a provider nobody knows."""
    from batchpond.providers import registry
    from batchpond.study.prices import known

    provider, _, model = of.partition("/")
    modes = [mode for mode in (Mode.BATCH, Mode.LIVE) if mode in registry.module(provider).DESCRIPTOR.modes]
    return [PricedModel(provider, name, mode) for name in ([model] if model else known(provider)) for mode in modes]


def _planned(invocation: Invocation) -> list[PricedModel]:
    if not invocation.lake_path.exists():
        raise UsageError(
            "there is no lake whose models could be priced", hint="name a provider: `batchpond prices openai`"
        )
    from batchpond.views.read import run_query

    found = run_query(invocation.lake_path, _PLANNED).to_pylist()
    return [PricedModel(row["provider"], row["request_model"], Mode(row["mode"])) for row in found]
