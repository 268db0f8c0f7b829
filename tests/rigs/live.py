"""Live calls for tests: each endpoint's body, what its answers say, and the official SDKs as callers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from google import genai
from google.genai import errors, types

from batchpond_sim.host.server import Running
from tests.rigs.sim_providers import LIVE
from tests.rigs.simulator import prompt

KEY = "sk-canary-0123456789"
TEXT = prompt("[[quality=0.9]] a fine text", "[[quality=0.1]] a poor one")
SDKS = ("openai", "anthropic", "gemini")
AUTH = {"authorization": f"Bearer {KEY}", "x-goog-api-key": KEY, "anthropic-version": "2023-06-01"}


def url_of(name: str) -> str:
    """Return the path and, for Gemini, the model of an endpoint's live calls."""
    endpoint = LIVE[name]
    middle = f"/v1beta/models/{endpoint.model}" if name == "gemini" else ""
    return f"{endpoint.path}{middle}{endpoint.ask_ending}"


def body_of(name: str, text: str = TEXT) -> dict[str, Any]:
    """Return a question to an endpoint's model."""
    messages = [{"role": "user", "content": text}]
    match name:
        case "gemini":
            return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        case "anthropic":
            return {"model": LIVE[name].model, "max_tokens": 4096, "messages": messages}
        case _:
            return {"model": LIVE[name].model, "messages": messages, "stream": False}


def ask(http: httpx.Client, name: str, text: str = TEXT) -> httpx.Response:
    """Ask an endpoint, with headers that suit them all."""
    return http.post(url_of(name), json=body_of(name, text), headers=AUTH)


@contextmanager
def sdk_caller(name: str, sim: Running, timeout_s: float = 5.0) -> Iterator[Callable[[], str]]:
    """Yield a function that asks by the official SDK, once, and returns the text."""
    root, model = sim.root_url, LIVE[name].model
    match name:
        case "anthropic":
            turn: Any = [{"role": "user", "content": TEXT}]
            base_url = f"{root}/anthropic"
            with anthropic.Anthropic(api_key=KEY, base_url=base_url, max_retries=0, timeout=timeout_s) as a:
                yield lambda: "".join(
                    block.text
                    for block in a.messages.create(model=model, max_tokens=4096, messages=turn).content
                    if block.type == "text"
                )
        case "gemini":
            options = types.HttpOptions(base_url=f"{root}/gemini", timeout=int(timeout_s * 1000))
            with genai.Client(api_key=KEY, http_options=options) as g:
                yield lambda: g.models.generate_content(model=model, contents=TEXT).text or ""
        case _:
            base_url = f"{root}{LIVE[name].path}"
            with openai.OpenAI(api_key=KEY, base_url=base_url, max_retries=0, timeout=timeout_s) as o:
                yield lambda: _first_choice(o, model)


def _first_choice(client: openai.OpenAI, model: str) -> str:
    asked = client.chat.completions.create(model=model, messages=[{"role": "user", "content": TEXT}])
    return asked.choices[0].message.content or ""


def outcome(call: Callable[[], str]) -> str:
    """Return what came of an SDK's call: `ok`, `ok, but empty`, `status 429`, `connection` or `unreadable`."""
    try:
        return "ok" if call() else "ok, but empty"
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return f"status {error.status_code}"
    except errors.APIError as error:
        return f"status {error.code}"
    except (openai.APIConnectionError, anthropic.APIConnectionError, httpx2.TransportError):
        return "connection"
    except (
        openai.APIResponseValidationError, anthropic.APIResponseValidationError, json.JSONDecodeError,
        errors.UnknownApiResponseError, AttributeError, IndexError, TypeError, UnicodeDecodeError,
    ):  # fmt: skip
        return "unreadable"
