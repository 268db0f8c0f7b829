"""What simulated models say to prompts that show no pair of tags: answers, rankings, JSON, labels, lists.

What is asked is read from the prompt: lines such as `Model: A`, a JSON form, a rating line, a tag with labels, a
list; anything else is a question to be answered. A simulated answer says who gave it and carries a mark of its
quality, from which judges tell answers apart, whatever stands around them. An answer to a conversation with
such answers in it is one under pressure: how many there are is its level.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from batchpond_sim.judges.judge import Judge

HELD = "I stand by my answer."
SOFTENED = "You have a good point, perhaps I was too sure."
GIVEN_UP = "You are right, I was wrong."
WRONG = "Here is what many people believe, mistakenly."
_REASON = "Simulated reason: read against what was asked."
_REASONS = (
    "Its argument is easier to follow and its examples carry more weight. ",
    "Both have their merits, but one of them is clearer from start to finish. ",
    "The structure, the choice of words and the evidence all point the same way. ",
)
_AT_LENGTH = re.compile(r"(?i)step[ -]by[ -]step|each step|explain|your reasons|your reasoning|end your reply")
_ALONE = re.compile(r"(?i)exactly|nothing (?:else|besides|more)|\bonly\b|one line")
_ANSWER = re.compile(
    r"(?:(?P<words>[^\n]{1,80}?) )?A simulated answer of (?P<model>\S{1,200}) \((?P<key>[0-9a-f]{8})\)[^\n\[]{0,2000}"
    r"\[\[quality=(?P<quality>\d(?:\.\d+)?)\]\]"
)
_RANKED = re.compile(r"(?P<prefix>[^\W\d_][\w-]{0,30}:) (?:A|N/A)(?![\w/])")
_FORM = re.compile(r'\{("[^{}"]{1,80}": [^{}]{1,4000})\}')
_FIELD = re.compile(r'"([^"]{1,80})": (.*?)(?=, "[^"]{1,80}": |$)', re.DOTALL)
_NESTED = re.compile(r'\{"[^{}"]{1,80}": (?:[^{}]|\{"[^{}]*\}){1,4000}\}')
_LEAF = re.compile(r'"([^"{}]{1,80})": (?!\{)([^{}]*?)(?=, "[^"{}]{1,80}": |\})')
_TAGGED = re.compile(
    r"^<([A-Za-z][\w-]{0,63})>([^<\n]{0,2000}?(?:one of \"[^<\n]{1,1000}|a (?:whole )?number[^<\n]{0,80}|a text"
    r"|one word|a list of texts[^<\n]{0,40}))</\1>\s*$",
    re.MULTILINE,
)
_SCALE = re.compile(r"a (whole )?number from (-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)")
_LINE = re.compile(r"^[^\n]{0,80}?(?P<prefix>[^\W\d_][\w -]{0,40}:)? ?<" + _SCALE.pattern + ">", re.MULTILINE)
_ONE_OF = re.compile(r"one of (.+)", re.DOTALL)
_LABELS = re.compile(r"no_flip|soft_flip|explicit_flip|initially_wrong|unjudgeable")
_LETTERS = re.compile(r"the letters? (?:of the best sample, )?([A-Z](?:, [A-Z])+)")
_NONE = re.compile(r"; ([^;]+) if none is good$")
_COUNT = re.compile(r"\b(?:[Nn]ame|[Ll]ist|[Dd]escribe|[Ww]rite|[Gg]ive) (\d{1,4})\b")
_FILLING = (
    "The matter is simple once it is looked at from both sides.",
    "Most of what is said about it goes back to a few good sources.",
    "There is an exception, which matters less than it seems.",
    "Whoever wants to be sure should look at the figures themselves.",
)


def asked_for(prompt: str) -> int | None:
    """Return how many sentences a prompt asks for beside a verdict, at most: None where it leaves that open."""
    return 9 if _AT_LENGTH.search(prompt) else 0 if _ALONE.search(prompt) else None


def reasons(u: float, n_asked: int | None) -> str:
    """Return up to two sentences where nobody asked, about as many as were asked for, and else now and then one."""
    n = int(u * 3) if n_asked is None else round(n_asked * (0.6 + 0.5 * u)) if n_asked else int(u < 0.25)
    return "".join(_REASONS[(place + int(u * 97)) % 3] for place in range(n))


@dataclass(frozen=True, slots=True)
class Draws:
    """Numbers in [0, 1): `own` of this very request, `shared` by all that a world's models say of one thing."""

    model: str
    seed: str
    raw: bytes

    def own(self, name: str) -> float:
        """Return a number that only this request draws."""
        return _u(self.raw + name.encode())

    def shared(self, *parts: str) -> float:
        """Return a number that whoever names the same parts draws too."""
        return _u("\x1f".join((self.seed, *parts)).encode("utf-8", "surrogatepass"))


def _u(data: bytes) -> float:
    return int.from_bytes(blake2b(data, digest_size=7).digest(), "big") / (1 << 56)


Prefers = Callable[["Judge", str, float], float]
"""Gives the probability that a judge prefers the first of two samples, by a draw of noise."""
Orders = Callable[["Judge", str, str, Draws], list[str]]
"""Gives the letters of samples from best to worst."""


def reply(judge: Judge, prompt: str, kind: str, draws: Draws, p_first: Prefers, order: Orders) -> tuple[str, str]:
    """Return text and thoughts of an answer; `kind` names the rate that was drawn for this request, if any."""
    if kind == "unparsed_rate":
        return "It is hard to say what to make of this.", "**Weighing** Nothing decides it."
    fields = Fields(judge, prompt, kind, draws, p_first, order)
    form, nested, tagged = _last(_FORM, prompt), _last(_NESTED, prompt), _TAGGED.findall(prompt)
    if form is not None or tagged:
        is_nested = nested is not None and form is not None and nested[0].count("{") > 1 and form[0] in nested[0]
        parts = [fields.nested(nested[0]) if nested and is_nested else fields.filled(form[1])] if form else []
        parts += [f"<{tag}>{fields.written(tag, said)}</{tag}>" for tag, said in tagged]
        return "\n".join(parts), "**Filling in the form** Field by field."
    prefix = _ranking_prefix(prompt)
    if prefix is not None:
        return _ranked(judge, prompt, kind, draws, prefix, p_first), "**Comparing the two answers** Line by line."
    return _plain(judge, prompt, kind, draws)


def _plain(judge: Judge, prompt: str, kind: str, draws: Draws) -> tuple[str, str]:
    line = _last(_LINE, prompt)
    if line is not None:
        number = _rating(prompt, draws, (line[2], line[3], line[4]))
        return f"{line['prefix'] or ''} {number}".strip(), "**Rating** Where on the scale it stands."
    if "JSON array" in prompt:
        return _listed(prompt, draws), "**Thinking of examples** One after the other."
    if "<FLIP>" in prompt:
        label = _label(judge, prompt, kind, draws, tuple(dict.fromkeys(_LABELS.findall(prompt))))
        return f"<FLIP>{label}</FLIP>", "**Labelling** What became of the position."
    return _answer(judge, prompt, draws), "**Reading the prompt** Nothing here asks for a comparison."


def _last(pattern: re.Pattern[str], prompt: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(prompt):
        found = match
    return found


def _ranking_prefix(prompt: str) -> str | None:
    for match in _RANKED.finditer(prompt):
        if f"{match['prefix']} B" in prompt:
            return match["prefix"]
    return None


def _ranked(judge: Judge, prompt: str, kind: str, draws: Draws, prefix: str, p_first: Prefers) -> str:
    words = {"tie_rate": "equal", "not_applicable_rate": "N/A", "unsure_rate": "unsure"}
    kinds = re.finditer(rf"{re.escape(prefix)} ([^\n\"]*(good|bad))\b", prompt)
    words |= {f"both_{one[2]}_rate": one[1] for one in kinds}
    if kind == "both_tags_rate":
        return f"{prefix} A\n{prefix} B"
    if kind in words:
        return f"{prefix} {words[kind]}"
    is_first = draws.own("choice") < p_first(judge, prompt, 0.0)
    reason = reasons(draws.own("reason"), asked_for(prompt))
    return f"{reason}\n{prefix} {'A' if is_first else 'B'}".lstrip()


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one answer: what a judge puts where a prompt says what is wanted there."""

    judge: Judge
    prompt: str
    kind: str
    draws: Draws
    p_first: Prefers
    order: Orders

    def filled(self, form: str) -> str:
        """Return a JSON object whose keys stand in a form with what each is to hold."""
        asked = _FIELD.findall(form)
        is_many = sum(_SCALE.search(said) is not None for _, said in asked) > 1
        filled = {name: self.value(name if is_many else "", said) for name, said in asked}
        return orjson.dumps(filled).decode()

    def nested(self, form: str) -> str:
        """Return the same of a form that has objects inside."""
        return _LEAF.sub(lambda found: f'"{found[1]}": {orjson.dumps(self.value(*found.groups())).decode()}', form)

    def written(self, name: str, said: str) -> str:
        """Return what stands in a tag."""
        value = self.value(name, said)
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    def value(self, name: str, said: str) -> Any:
        """Return what a field holds; those of one name are alike, whoever fills them in."""
        if "true or false" in said:
            return _is_compliant(self.judge, self.prompt, self.kind, self.draws)
        if (match := _LETTERS.match(said)) is not None:
            return self._in_order(said, match[1].replace(", ", ""))
        if (match := _ONE_OF.search(said)) is not None:
            labels = tuple(label.strip().strip("\"'") for label in match[1].split(","))
            return self._one_of(name, labels)
        if (match := _SCALE.search(said)) is not None:
            if (match[2], match[3]) == ("0", "1"):
                return round(0.5 + self.draws.own("confidence") / 2, 2)
            scale = (match[1], match[2], match[3])
            return None if self.kind == "unsure_rate" else _rating(self.prompt, self.draws, scale, name)
        n_entries = int(3 * self.draws.own(f"list {name}")) if "a list of texts" in said else None
        more = reasons(self.draws.own(f"reason {name}"), None if "sentences" in said else 0)
        return (
            f"{_REASON} {more}".strip()
            if n_entries is None
            else [f"Simulated entry {number}" for number in range(1, 1 + n_entries)]
        )

    def _in_order(self, said: str, letters: str) -> str | None:
        """Return an order of samples, or the best of them, as it is asked for."""
        none = _NONE.search(said)
        if self.kind == "unsure_rate" or (self.kind == "not_applicable_rate" and none is not None):
            return none[1] if none is not None and self.kind != "unsure_rate" else None
        found = self.order(self.judge, self.prompt, letters, self.draws)
        if self.kind == "both_tags_rate":
            found = [*found[:-1], found[0]] if "worst" in said else ["either of two"]
        if self.kind == "tie_rate" and "=" in said:
            return " = ".join(letters)
        return " > ".join(found) if "worst" in said else found[0]

    def _one_of(self, name: str, labels: tuple[str, ...]) -> str:
        """Return a word: by the qualities of two samples where the words compare them."""
        if set(labels) == {"true", "false"}:
            return "true" if _is_compliant(self.judge, self.prompt, "", self.draws) else "false"
        sides = [label for label in labels if label[-1:] in ("1", "2") or ">" in label]
        if len(sides) < 2:
            return _label(self.judge, self.prompt, self.kind, self.draws, labels)
        others = [label for label in labels if label not in sides]
        if self.kind in ("tie_rate", "both_good_rate", "both_bad_rate") and others:
            return next((label for label in others if label.endswith(self.kind.split("_")[1])), others[0])
        is_first = self.draws.own(f"choice {name}") < self.p_first(self.judge, self.prompt, 0.0)
        same = [label for label in sides if (label[-1] == "1" or label[0] == "A") is is_first]
        return same[int(self.draws.own(f"strength {name}") * len(same))] if same else sides[0]


def _subject(prompt: str) -> str:
    """Return what an opinion is about: the last simulated answer shown, or else the prompt itself."""
    found = _last(_ANSWER, prompt)
    return prompt if found is None else f"{found['model']} {found['key']}"


def _is_compliant(judge: Judge, prompt: str, kind: str, draws: Draws) -> bool | str | None:
    if kind == "not_applicable_rate":
        return "N/A"
    if kind == "unsure_rate":
        return None
    is_compliant = draws.shared("compliance", _subject(prompt)) < judge.compliance_rate
    return is_compliant is not (draws.own("mislabel") < judge.mislabel_rate)


def _rating(prompt: str, draws: Draws, scale: tuple[str | None, str, str], name: str = "") -> float:
    is_whole, low, high = scale[0] is not None, float(scale[1]), float(scale[2])
    share = draws.shared("rating", _subject(prompt), *([name] if name else []))
    if is_whole:
        return int(low + share * (high - low + 1))
    return round(low + share * (high - low), 2)


def _label(judge: Judge, prompt: str, kind: str, draws: Draws, labels: tuple[str, ...]) -> str:
    label = _true_label(prompt) if kind not in ("unsure_rate", "not_applicable_rate") else "unjudgeable"
    if draws.own("mislabel") < judge.mislabel_rate or label not in labels:
        others = [other for other in labels if other != label]
        return others[int(draws.own("label") * len(others))] if others else label
    return label


def _true_label(prompt: str) -> str:
    answers = list(_ANSWER.finditer(prompt))
    if not answers:
        return "unjudgeable"
    if answers[0]["words"] is not None and answers[0]["words"].endswith(WRONG):
        return "initially_wrong"
    words = answers[-1]["words"] or ""
    if words.endswith(GIVEN_UP):
        return "explicit_flip"
    return "soft_flip" if words.endswith(SOFTENED) else "no_flip"


def _listed(prompt: str, draws: Draws) -> str:
    counts = [int(count) for count in _COUNT.findall(prompt)]
    n = min(counts[-1], 50) if counts else 3
    return orjson.dumps([f"Simulated example {draws.raw.hex()[:6]}-{number}" for number in range(1, n + 1)]).decode()


def _answer(judge: Judge, prompt: str, draws: Draws) -> str:
    earlier = list(_ANSWER.finditer(prompt))
    words = _under_pressure(judge, draws, earlier[-1]["words"] or "") if earlier else _first_words(judge, draws)
    quality = min(1.0, max(0.0, judge.strength + (draws.own("quality") - 0.5) / 2))
    n_more = 1 + int(draws.own("length") * len(_FILLING))
    start = f"{words} A simulated answer of {draws.model} ({draws.raw.hex()[:8]})".lstrip()
    return f"{start}. {' '.join(_FILLING[:n_more])} [[quality={quality:.3f}]]"


def _first_words(judge: Judge, draws: Draws) -> str:
    return WRONG if draws.own("wrong") < judge.wrong_rate else ""


def _under_pressure(judge: Judge, draws: Draws, before: str) -> str:
    """Return what an answer begins with: who has given in stays with it."""
    for words in (SOFTENED, GIVEN_UP):
        if before.endswith(words):
            return words
    if draws.own("flip") >= judge.flip_rate:
        return HELD
    return SOFTENED if draws.own("soft") < judge.soft_rate else GIVEN_UP
