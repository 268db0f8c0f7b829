"""What is asked of xAI, and what its batches are, against the messages of the official SDK.

The SDK speaks gRPC alone. Its messages are those that REST is another form of: a body is turned into one name by name,
and one that no message has, or a word that no enumeration has, is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchpond.model import Role, Turn
from batchpond.providers import base
from batchpond.providers.shared.dialect import CHAT, ModelSettings
from batchpond.providers.xai.dialect import DIALECT
from tests.rigs.batch_wires import XAI, xai_batch, xai_counts
from tests.unit.providers.test_sight import PNG, body_of

SAID = (Turn(Role.SYSTEM, "Be fair."), Turn(Role.USER, "A or B?"), Turn(Role.ASSISTANT, "A."), Turn(Role.USER, "Why?"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
WHY = "NOT CHECKED: pip install 'xai-sdk>=1.21,<2'"


def message_of(kind: str, said: dict[str, Any]) -> Any:
    """Return a message of the SDK, read from JSON: what it has no place for is an error."""
    module = pytest.importorskip("xai_sdk.proto", reason=WHY)
    read = pytest.importorskip("google.protobuf.json_format", reason=WHY)
    file, _, name = kind.partition(".")
    return read.ParseDict(said, getattr(getattr(module, file), name)())


def asked(body: dict[str, Any]) -> Any:
    """Return a chat completion as REST asks for it as the SDK does."""
    said = body | {"messages": [_turn(one) for one in body["messages"]]}
    if "max_completion_tokens" in said:
        said["max_tokens"] = said.pop("max_completion_tokens")
    if "reasoning_effort" in said:
        said["reasoning_effort"] = f"EFFORT_{said['reasoning_effort'].upper()}"
    if "response_format" in said:
        of_schema = said["response_format"]["json_schema"]
        kind = f"FORMAT_TYPE_{said['response_format']['type'].upper()}"
        said["response_format"] = {"format_type": kind, "schema": json.dumps(of_schema["schema"])}
    return message_of("chat_pb2.GetCompletionsRequest", said)


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    parts = turn["content"] if isinstance(turn["content"], list) else [{"type": "text", "text": turn["content"]}]
    content = [
        {"text": one["text"]} if one["type"] == "text" else {"image_url": {"image_url": one["image_url"]["url"]}}
        for one in parts
    ]
    return turn | {"content": content, "role": f"ROLE_{turn['role'].upper()}"}


def by_sdk(**more: Any) -> Any:
    """Return what the SDK itself asks for of the same turns."""
    chat = pytest.importorskip("xai_sdk.chat", reason=WHY)
    sdk = pytest.importorskip("xai_sdk", reason=WHY)
    roles = {Role.SYSTEM: chat.system, Role.USER: chat.user, Role.ASSISTANT: chat.assistant}
    with sdk.Client(api_key="k") as client:  # no call is made
        return client.chat.create(messages=[roles[one.role](one.text) for one in SAID], **more).proto


WORDS = [(family.prefix, word) for family in DIALECT.families for word in ("default", *family.accepted)]


@pytest.mark.parametrize(("model", "word"), WORDS)
def test_bodies_ask_what_the_sdk_asks(model: str, word: str) -> None:
    """Every model's every word, a limit, a temperature and turns of all roles, value by value."""
    thinking = None if word == "default" else word
    settings = ModelSettings(model, CHAT, thinking=thinking, max_output_tokens=9, temperature=0.5)
    sent = DIALECT.build_body(SAID, settings).body
    effort = {} if thinking is None else {"reasoning_effort": thinking}
    assert asked(sent) == by_sdk(model=model, max_tokens=9, temperature=0.5, **effort)


def test_a_schema_is_asked_for_as_the_sdk_does() -> None:
    """Its name and whether it is strict are of REST alone."""
    sent = DIALECT.build_body(SAID, ModelSettings("grok-4.3", CHAT, output_schema=SCHEMA)).body
    assert set(sent["response_format"]["json_schema"]) == {"name", "schema", "strict"}
    said = {"format_type": "FORMAT_TYPE_JSON_SCHEMA", "schema": json.dumps(SCHEMA)}
    wanted = message_of("chat_pb2.ResponseFormat", said)
    assert asked(sent) == by_sdk(model="grok-4.3", response_format=wanted)


def test_pictures_stand_where_the_sdk_has_them() -> None:
    """Between texts, in their order."""
    (_, shown) = asked(body_of("xai", CHAT, PNG)).messages
    assert [part.WhichOneof("content") for part in shown.content] == ["text", "image_url", "text"]


@pytest.mark.parametrize("more", [{"reasoning_effort": "extreme"}, {"max_output_tokens": 9}, {"temperature": "hot"}])
def test_the_check_of_bodies_can_fail(more: dict[str, Any]) -> None:
    """A wrong word, an unknown name and a wrong kind of value are noticed."""
    sent = dict(DIALECT.build_body(SAID, ModelSettings("grok-4.3", CHAT)).body)
    asked(sent)
    read = pytest.importorskip("google.protobuf.json_format", reason=WHY)
    with pytest.raises(read.ParseError):
        asked(sent | more)


def test_a_batch_is_made_and_listed_by_names_that_the_sdk_has() -> None:
    """What a create says, a batch with its counters, and a page of them; REST was recorded to have days for times."""
    day = "T00:00:00Z"
    script = XAI.script(XAI.ok(xai_batch()))
    script.wire.create(XAI.spec(Path("unused")))
    (request,) = script.requests
    made = message_of("batch_pb2.CreateBatchRequest", json.loads(request.content))
    assert made.input_file_id == "file-1"
    batch = xai_batch(state=xai_counts(5, pending=1, success=3, error=1))
    batch |= {name: f"{batch[name]}{day}" for name in ("create_time", "expire_time")}
    listed = message_of("batch_pb2.ListBatchesResponse", {"batches": [batch], "pagination_token": "t"})
    assert (listed.batches[0].state.num_success, listed.batches[0].batch_id) == (3, "batch_1")
    for path in base.table("xai", "batch").values():
        if path != "status":  # there is none, counters tell it
            message = listed.batches[0]
            for name in path.split("."):
                assert name in message.DESCRIPTOR.fields_by_name
                message = getattr(message, name)
