"""Policy statements: JSON lines, YAML and Markdown say the same, and what is wrong is one error with file and line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError, UsageError
from batchpond.study.statements import read
from batchpond_importers import policies
from tests.rigs.foreign import put

EXAMPLE = {"description": "a direct question (bad: evasive)", "user_query": "Is it true?", "bad_response": "Maybe.",
           "good_response": "No.\n\nIt is not."}  # fmt: skip
STATEMENTS: list[dict[str, Any]] = [
    {"id": "no", "text": "Do not lie.\n\n- Not even `a bit`.", "type": "prohibition", "authority_level": "user",
     "section": "Seek the truth", "subsection": "Be honest / Do not lie", "metadata": {"examples": [EXAMPLE]}},
    {"id": "2026-01-01", "text": "# not a heading, a text", "type": "guideline", "authority_level": "root",
     "section": "Seek the truth", "subsection": "Be brief", "metadata": {"examples": []}},
]  # fmt: skip
MARKDOWN = """\
Words before the first heading.

# Overview {#overview}
An anchor, no statement, since others state an authority.
# Seek the truth
## Be honest {#honest}
### Do not lie {#no authority=user type="prohibition" tags=a,b}

Do not lie.

**Example**: a direct
question

~~~xml
<user>
Is it true?
</user>
<comparison>
<assistant> <!-- BAD: evasive -->
Maybe.
</assistant>
<assistant> <!-- GOOD -->
No.

It is not.
</assistant>
</comparison>
~~~

- Not even `a bit`.
## Be brief {#2026-01-01} authority=root ##
```
# not a heading
```
"""


def jsonl(rows: list[dict[str, Any]]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_all_forms_of_a_spec_are_the_same_rubrics(tmp_path: Path) -> None:
    """Of one hash: YAML's `no` and dates are texts, `PROHIBITION` is `prohibition`, and fences hold no headings."""
    rows = [STATEMENTS[0], STATEMENTS[1] | {"text": "```\n# not a heading\n```"}]
    expected = read(put(tmp_path, "spec.jsonl", jsonl(rows)))
    loud = [row | {"type": row["type"].upper()} for row in rows]
    named = {f"{n}.yaml": row for n, row in enumerate(loud)}
    for name, row in named.items():
        put(tmp_path / "folder", name, yaml.dump(row, sort_keys=False))
    put(tmp_path / "folder", "README.md", "# not read in a folder of YAML {#x}\ntext\n")
    forms = {
        "list.yaml": yaml.dump(loud),
        "named.yml": yaml.dump({"version": 2, "statements": loud}),
        "documents.yaml": "\ufeff" + yaml.dump_all(loud, explicit_start=True),
        "crlf.yaml": yaml.dump(loud).replace("\n", "\r\n"),
        "spec.md": MARKDOWN,
        "crlf.markdown": "\ufeff" + MARKDOWN.replace("\n", "\r\n"),
    }
    for name, text in forms.items():
        assert read(put(tmp_path, name, text)) == expected, name
    assert read(tmp_path / "folder") == expected
    assert [rubric.rubric_id for rubric in expected] == ["no", "2026-01-01"]


def test_headings_with_ids_are_statements_where_none_states_an_authority(tmp_path: Path) -> None:
    """Headings without an id are their sections; a text under the last one ends with the file."""
    found = read(put(tmp_path, "s.md", "# A\nprose\n## B {#b}\nB says.\n#### C\nmore\n## D {#d}\nD says."))
    assert [(rubric.rubric_id, rubric.description) for rubric in found] == [("b", "B says."), ("d", "D says.")]
    assert dict(found[0].more)["SECTION"] == "A"


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ("**Example:** one line", ("one line", "", "", "")),
        ("**Example 2**: code\n```\nprint()\n```", ("code", "print()", "", "")),
        ("**Example**:\n\n~~~\n<user>Hi</user>\n<assistant><!-- good -->Yes</assistant>\n~~~", ("", "Hi", "", "Yes")),
        (
            "**Example**: long\n\n~~~xml\n<developer>Be kind.</developer>\n<user>\nHi\n</user>\n<comparison>\n"
            "<assistant> <!-- OK -->\nso so\n</assistant>\n"
            "<assistant> <!-- BAD[#x]: rude -->\n```\nno\n```\n</assistant>\n</comparison>\n~~~",
            ("long (bad: rude)", "developer: Be kind.\n\nuser: Hi", "```\nno\n```", ""),
        ),
    ],
)
def test_examples_of_any_form_are_taken_out_of_the_text(example: str, shown: tuple[str, ...]) -> None:
    """What is marked neither good nor bad is no example of either."""
    ((_, entry),) = policies.markdown_entries(f"# A {{#a}}\nBefore.\n\n{example}\n\nAfter.\n")
    assert isinstance(entry, dict)
    (found,) = entry["metadata"]["examples"]
    assert tuple(found.values()) == shown
    assert entry["text"] == "Before.\n\nAfter."


def test_answers_beyond_the_first_pair_are_examples_of_their_own() -> None:
    """Nothing is dropped where one question has two bad answers."""
    said = "".join(f"<assistant> <!-- {mark} -->{n}</assistant>\n" for n, mark in enumerate(("BAD", "GOOD", "BAD")))
    text = f"# A {{#a}}\nx\n**Example**: e\n~~~xml\n<user>q</user>\n<comparison>\n{said}</comparison>\n~~~\n"
    ((_, entry),) = policies.markdown_entries(text)
    assert isinstance(entry, dict)
    found = [(one["bad_response"], one["good_response"]) for one in entry["metadata"]["examples"]]
    assert found == [("0", "1"), ("2", "")]


WRONG = [
    ("s.jsonl", '{"id": "a", "text": "x"}\n{"id": 1}\nnot json\n', ["s.jsonl:2: no id", "s.jsonl:3: is not JSON"]),
    ("s.jsonl", '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n', ["s.jsonl:2: id 'a' a second time, first at"]),
    ("s.jsonl", '{"id": "a", "text": "x", "examples": [{"user_query": 3}]}\n', ["s.jsonl:1", "example 1 is not"]),
    ("s.jsonl", '{"id": "a", "text": "x", "examples": ["good"]}\n', ["s.jsonl:1", "example 1 is not"]),
    ("s.jsonl", '{"id": "a", "text": "x", "examples": "good"}\n', ["no list of at most 100"]),
    ("s.jsonl", "", ["0 statements; 1 to 100,000 can be used"]),
    ("s.txt", "{}", ["ends with '.txt', not one of .jsonl"]),
    ("s.yaml", "- id: a\n  text: x\n- id: b\n", ["s.yaml:3: statement 'b' has no text"]),
    ("s.yaml", "- id: a\n  text: [x\n", ["s.yaml:3: is not YAML"]),
    ("s.yaml", "- id: a\n  text: x\n  id: b\n", ["s.yaml:3: has the key 'id' twice"]),
    ("s.yaml", "- id: ~\n  text: x\n- just text\n", ["s.yaml:1: no id", "s.yaml:3: is 'just text', not a mapping"]),
    ("s.yaml", "? [a]\n: b\n", ["s.yaml:1: has a key that is no text"]),
    ("s.yaml", "id: a\ntext: \x07\n", ["s.yaml:2: is not YAML"]),
    ("s.yaml", "[" * 3_000, ["is not usable YAML: nested too deeply"]),
    ("s.md", "# A\nprose\n", ["0 statements"]),
    ("s.md", "# A {#a}\n# B {#b}\nx\n", ["s.md:1: statement 'a' has no text"]),
    ("s.md", "# A {#a autority=user}\nx\n", ["s.md:1: the heading has 'autority'; did you mean one of authority"]),
    ("s.md", "# A {#}\nx\n", ["s.md:1: the heading has {#} without an id"]),
    ("s.md", "# A {#a user}\nx\n", ["s.md:1: the heading has 'user', which is no name=value"]),
    ("s.md", "# A {#a}\nx\n~~~\n# B {#b}\ny\n", ["s.md:3: the block ~~~ is not closed"]),
    ("s.md", "# A {#a}\nx\n# B {#a}\ny\n", ["s.md:3: id 'a' a second time, first at"]),
    ("s.md", "# A {#a}\nx\n**Example**: e\n~~~\n<user>\nhi\n~~~\n", ["s.md:5: <user> is not closed"]),
    ("s.md", "# A {#a}\nx\n**Example**: e\n~~~\n<comparison>\n~~~\n", ["s.md:5: <comparison> is not closed"]),
    ("s.md", b"# A {#a}\n\xff\n", ["s.md:2: not valid UTF-8"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "messages"), WRONG)
def test_what_is_wrong_is_one_error_with_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, messages: list[str]
) -> None:
    with pytest.raises(StudyError) as caught:
        read(put(tmp_path, name, content))
    for message in messages:
        assert message in caught.value.message


def test_a_folder_names_the_file_of_each_error(tmp_path: Path) -> None:
    put(tmp_path, "a.yaml", "id: same\ntext: x\n")
    put(tmp_path, "b.yaml", "id: same\ntext: y\n")
    with pytest.raises(StudyError, match=r"b\.yaml:1: id 'same' a second time, first at .*a\.yaml:1"):
        read(tmp_path)


def test_names_that_repeat_what_they_name_do_not_explode() -> None:
    """Ten references to ten references ... are a billion values in a few lines."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert list(policies.yaml_entries("\n".join(lines))) == [(1, "is not usable YAML: more than 200,000 values")]


def test_yaml_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(StudyError, match="YAML specs need PyYAML") as caught:
        read(put(tmp_path, "s.yaml", "id: a\ntext: x\n"))
    assert caught.value.hint == "pip install 'batchpond[yaml]'"


@given(st.text(st.sampled_from(list("# {}a=\n~`<>/!-*user:")), max_size=200))
def test_any_markdown_gives_statements_or_problems(text: str) -> None:
    """Never an exception, and never a line that is not in the text."""
    for line_no, entry in policies.markdown_entries(text):
        assert 1 <= line_no <= text.count("\n") + 1
        assert isinstance(entry, str) or entry["id"]


def test_an_installed_package_can_read_statements_of_another_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry point by the suffix of the file, loaded when such a file is read; one that cannot be loaded is said."""
    reader = (
        "def read(text):\n    return ((n, {'id': f's{n}', 'text': line}) for n, line in enumerate(text.split(), 1))\n"
    )
    put(tmp_path / "site", "toy_rules.py", reader)
    put(tmp_path / "site", "toy_rules-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-rules\nVersion: 1\n")
    points = "[batchpond.statements]\nrules = toy_rules:read\nlaws = toy_laws:read\n"
    put(tmp_path / "site", "toy_rules-1.dist-info/entry_points.txt", points)
    monkeypatch.syspath_prepend(tmp_path / "site")
    put(tmp_path, "policy.rules", "Honesty Brevity")
    assert [(rubric.rubric_id, rubric.description) for rubric in read(tmp_path / "policy.rules")] == [
        ("s1", "Honesty"), ("s2", "Brevity"),
    ]  # fmt: skip
    put(tmp_path, "policy.laws", "Honesty")
    with pytest.raises(UsageError, match=r"toy-rules cannot read statements in \.laws: No module named 'toy_laws'"):
        read(tmp_path / "policy.laws")
    with pytest.raises(StudyError, match=r"ends with '\.creed', not one of .*\.laws, .*\.rules, .*\.yml"):
        read(put(tmp_path, "policy.creed", "Honesty"))
