"""`prices`: what is known of prices, by whom, and how to set one."""

from __future__ import annotations

import click

from batchpond.cli import output
from batchpond.cli.formats import Format
from batchpond.cli.frame import Invocation, format_option, pond_command
from batchpond.errors import UsageError
from batchpond.model import Mode, PricedModel

NAMES = ("provider", "model", "mode", "above_tokens", "input_usd", "cached_input_usd", "output_usd", "source")
_PLANNED = "SELECT DISTINCT provider, request_model, mode FROM plan_current ORDER BY ALL"


@pond_command("prices")
@click.argument("of", metavar="[PROVIDER[/MODEL]]", required=False)
@format_option
def command(invocation: Invocation, of: str | None, form: Format) -> None:
    """Show what is known of prices, in USD per million tokens: in batches and live, and who says so."""
    from batchpond.lake.store import CONFIG
    from batchpond.providers import registry
    from batchpond.study.prices import Prices, remarks

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
    output.records(NAMES, rows, form, has_color=invocation.color_stdout())
    for remark in remarks(asked[0]) if of and not is_listing else ():
        invocation.diagnostics.note(remark)
    unknown = [one for one, unit in found.items() if unit is None]
    if is_listing and not rows:
        is_free = registry.module(str(of)).DESCRIPTOR.is_free
        told = "asks a server of your own: nothing is billed" if is_free else "has no model whose price is known"
        invocation.diagnostics.note(f"{of} {told}", hint=f"`batchpond keys {of}` says what is known of it")
    elif unknown and not is_listing:
        invocation.diagnostics.note(
            f"no {unknown[0].mode} price is known for {unknown[0].provider}/{unknown[0].model}",
            hint=f'set input and output under [prices."{unknown[0].override}"] in {path}: `batchpond guide costs`',
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
