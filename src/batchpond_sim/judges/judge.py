"""Judges with a latent sense of quality, planted faults and a seed.

A judge asked to compare two samples answers "first" with probability

    logistic(sharpness * (quality of the first - quality of the second) + position_bias + noise * N(0, 1))

(Bradley-Terry with a position term). Of more than two it draws an order, the log-strength of each being sharpness *
quality + noise * N(0, 1) (Plackett-Luce), and position_bias more for the first, evenly less down to 0 for the last.
All randomness is a hash of the seed, the model, the prompt and the request's own key, so the same request gets the same
answer in any batch.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim import SimulatorError
from batchpond_sim.judges import replies

RATES = ("error_rate", "refusal_rate", "filtered_rate", "empty_rate", "unparsed_rate", "both_tags_rate", "tie_rate",
          "not_applicable_rate", "unsure_rate", "both_good_rate", "both_bad_rate")  # fmt: skip
_SHARES = ("compliance_rate", "mislabel_rate", "flip_rate", "soft_rate", "wrong_rate")


@dataclass(frozen=True, slots=True)
class Judge:
    """How the models that match `model` (a pattern such as `gpt-5*`) judge.

    With `text`, only prompts that contain it, so that each template can have its own bias.
    Rates of ways not to answer, tie_rate among them, are shares of requests; together they must not pass 1.
    `answer_first` and the others override the answer tags that are otherwise read from the prompt.

    Outputs are found compliant at `compliance_rate` and labels are wrong at `mislabel_rate`. As a model that
    answers questions, its first answers are wrong at `wrong_rate`, their quality is about `strength`, and at each
    level of pressure it gives in at `flip_rate`, of that softly at `soft_rate`.
    """

    model: str = "*"
    text: str = ""
    sharpness: float = 8.0
    position_bias: float = 0.0
    noise: float = 0.0
    tie_rate: float = 0.0
    refusal_rate: float = 0.0
    filtered_rate: float = 0.0
    unparsed_rate: float = 0.0
    both_tags_rate: float = 0.0
    empty_rate: float = 0.0
    error_rate: float = 0.0
    not_applicable_rate: float = 0.0
    unsure_rate: float = 0.0
    both_good_rate: float = 0.0
    both_bad_rate: float = 0.0
    compliance_rate: float = 0.7
    mislabel_rate: float = 0.0
    flip_rate: float = 0.2
    soft_rate: float = 0.5
    wrong_rate: float = 0.0
    strength: float = 0.5
    answer_first: str = ""
    answer_second: str = ""
    answer_tie: str = ""

    def suits(self, model: str, prompt: str) -> bool:
        """Return whether this judge speaks for a model about a prompt."""
        return (self.model == "*" or fnmatchcase(model, self.model)) and (not self.text or self.text in prompt)


DEFAULT_JUDGE = Judge()
_TEXT_FIELDS = frozenset(f.name for f in fields(Judge) if isinstance(f.default, str))


def parse_judge(spec: str) -> Judge:
    """Return the judge that `MODEL:name=value,...` or a JSON object describes.

    Raises SimulatorError for unknown names, values out of range, or rates over 1 in all.
    """
    values: dict[str, Any] = {}
    if spec.lstrip().startswith("{"):
        values = orjson.loads(spec)
    else:
        model, _, rest = spec.partition(":")
        values = {"model": model or "*"}
        for pair in filter(None, rest.split(",")):
            name, _, value = pair.partition("=")
            values[name.strip()] = value.strip()
    return judge_of(values, spec)


def judge_of(values: Mapping[str, Any], source: str) -> Judge:
    """Return the judge of a mapping of field names; `source` is named in errors."""
    known = [f.name for f in fields(Judge)]
    clean: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise SimulatorError(f"judge {source!r}: no setting {name!r}", hint=f"there are: {', '.join(known)}")
        clean[name] = str(value) if name in _TEXT_FIELDS else _number(source, name, value)
    judge = Judge(**clean)
    rates = [getattr(judge, name) for name in RATES]
    if min(rates) < 0 or sum(rates) > 1 + 1e-9:
        raise SimulatorError(f"judge {source!r}: rates must be 0 or more and at most 1 in all")
    shares = {name: getattr(judge, name) for name in (*_SHARES, "strength")}
    wrong = next((name for name, share in shares.items() if not 0 <= share <= 1), None)
    if wrong is not None:
        raise SimulatorError(f"judge {source!r}: {wrong} must be from 0 to 1")
    return judge


def _number(source: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise SimulatorError(f"judge {source!r}: {name} is not a number: {value!r}", hint=f"write {name}=0.5, say")
    return number


_HEAD = 24
_MARK = re.compile(r"\[\[quality=(-?\d+(?:\.\d+)?)\]\]")
_TAG = re.compile(r"(<([A-Za-z][\w-]*)>\s*([^<>\n]{1,60}?)\s*</\2>)")
_HEADING = re.compile(
    r"^[^\w\n]{0,8}(?:the |writing )?(?:sample|text|essay|response|candidate|item|passage)[ _-]*"
    r"(?:(1|one|a)|(2|two|b))\b[^\w\n]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_LISTED = re.compile(r"^=== SAMPLE ([A-Z]) ===\n(.*?)\n=== end of SAMPLE \1 ===$", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"""\n\s*|[:>"'`\[({|\u201c\u00ab]\s*""")
_SIX_WORDS = struct.Struct("<6Q")
_TIE_WORDS = frozenset({"tie", "equal", "same", "draw", "neither", "both"})


class Says(StrEnum):
    """What kind of answer a judge gives."""

    TEXT = "text"
    REFUSAL = "refusal"
    FILTERED = "filtered"
    EMPTY = "empty"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's answer; `u` is one more draw in [0, 1), for lengths and such."""

    says: Says
    text: str
    thoughts: str
    key: str
    u: float


@dataclass(frozen=True, slots=True)
class _Answers:
    first: str
    second: str
    tie: str
    kinds: Mapping[str, str]


class Panel:
    """All judges of a world and the sample texts whose quality they know."""

    def __init__(self, seed: int, path: Path | None = None) -> None:
        self.judges: tuple[Judge, ...] = ()
        self._seed = seed
        self._path = path
        self._quality: dict[str, float] = {}
        self._heads: dict[str, list[str]] = {}
        self._short: list[str] = []
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    row = orjson.loads(line)
                    self._learn(row["text"], row["quality"])

    def register(self, samples: Iterable[tuple[str, float]]) -> int:
        """Let the judges know the quality of texts, durably; return how many are known."""
        rows = [(text.strip(), float(quality)) for text, quality in samples]
        lines = b"".join(
            orjson.dumps({"text": t, "quality": q}, option=orjson.OPT_APPEND_NEWLINE) for t, q in rows if t
        )
        if self._path is not None:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(fd, lines)
            finally:
                os.close(fd)
        for text, quality in rows:
            self._learn(text, quality)
        return len(self._quality)

    def _learn(self, text: str, quality: float) -> None:
        if text and text not in self._quality:
            if len(text) < _HEAD:
                self._short.append(text)
            else:
                self._heads.setdefault(text[:_HEAD], []).append(text)
        if text:
            self._quality[text] = quality

    def judge_for(self, model: str, prompt: str) -> Judge:
        """Return the first judge that suits."""
        for judge in self.judges:
            if judge.suits(model, prompt):
                return judge
        return DEFAULT_JUDGE

    def answer(self, model: str, prompt: str, request_key: str) -> Judgement:
        """Return what `model` answers to `prompt`; repeats differ by `request_key`."""
        judge = self.judge_for(model, prompt)
        seed = f"{self._seed}|{model}|{request_key}|{zlib.crc32(prompt.encode('utf-8', 'surrogatepass'))}"
        raw = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=48).digest()
        u_kind, u_choice, u_a, u_b, u_words, u_rest = (word / 18446744073709551616.0 for word in _SIX_WORDS.unpack(raw))
        kind = _kind(judge, u_kind)
        says = _SAYS.get(kind, Says.TEXT)
        text = thoughts = ""
        if says is Says.TEXT:
            choice = kind
            answers = _answers(judge, prompt)
            if answers is None:
                draws = replies.Draws(model, f"{self._seed}", raw)
                text, thoughts = replies.reply(judge, prompt, kind, draws, self._p_first, self._order)
            else:
                if choice not in _WORDED:
                    gauss = _gauss(u_a, u_b) if judge.noise else 0.0
                    choice = "first" if u_choice < self._p_first(judge, prompt, gauss) else "second"
                text, thoughts = _words(choice, answers, u_words, replies.asked_for(prompt))
        return Judgement(says, text, thoughts, raw.hex()[:32], u_rest)

    def _p_first(self, judge: Judge, prompt: str, gauss: float) -> float:
        qualities = self.qualities(prompt)
        gap = qualities[0] - qualities[1] if qualities else 0.0
        logit = judge.sharpness * gap + judge.position_bias + judge.noise * gauss
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, logit))))

    def _order(self, judge: Judge, prompt: str, letters: str, draws: replies.Draws) -> list[str]:
        """Return the letters of the samples of a list from best to worst, by Plackett and Luce."""
        shown = {match[1]: match[2].strip() for match in _LISTED.finditer(prompt)}
        last, strength = max(1, len(letters) - 1), dict[str, float]()
        for place, letter in enumerate(letters):
            text = shown.get(letter, letter)
            mark, head = _MARK.search(text), text.split("\n", 1)[0][:64]
            quality = float(mark[1]) if mark else self._quality.get(text, self._hashed(head))
            chance = -math.log(-math.log(draws.own(f"order {letter}") or 1e-300))
            gauss = _gauss(draws.own(f"noise {letter}"), draws.own(f"angle {letter}")) if judge.noise else 0.0
            bias = judge.position_bias * (1 - place / last)
            strength[letter] = judge.sharpness * quality + bias + judge.noise * gauss + chance
        return sorted(letters, key=lambda letter: (-strength[letter], letter))

    def qualities(self, prompt: str) -> tuple[float, float] | None:
        """Return the qualities of the first and the second sample shown in a prompt.

        Known from marks `[[quality=0.7]]` in the samples, else from the registered texts in the
        order they stand in, else from a hash of what follows the headings of two samples.
        """
        if "[[quality=" in prompt:
            marks = _MARK.findall(prompt)
            if len(marks) >= 2:
                return float(marks[0]), float(marks[1])
        if self._quality:
            # From the cheapest look to the dearest: most templates put samples on lines of their own.
            found = self._at(prompt, _line_starts(prompt))
            found = found or self._at(prompt, (match.end() for match in _OPENING.finditer(prompt)))
            found = found or self._anywhere(prompt)
            if found is not None:
                return found
        return self._sections(prompt)

    def _at(self, prompt: str, starts: Iterable[int]) -> tuple[float, float] | None:
        first: float | None = None
        end = 0
        for at in starts:
            text = self._text_at(prompt, at) if at >= end else None
            if text is None:
                continue
            if first is not None:
                return first, self._quality[text]
            first, end = self._quality[text], at + len(text)
        return None

    def _text_at(self, prompt: str, at: int) -> str | None:
        texts = self._heads.get(prompt[at : at + _HEAD])
        fitting = [text for text in texts if prompt.startswith(text, at)] if texts else []
        if not fitting and self._short:
            fitting = [text for text in self._short if prompt.startswith(text, at)]
        return max(fitting, key=len) if fitting else None

    def _anywhere(self, prompt: str) -> tuple[float, float] | None:
        spots = []
        for text in self._quality:
            first = prompt.find(text)
            if first >= 0:
                spots.append((first, -len(text), text))
                again = prompt.find(text, first + len(text))
                if again >= 0:
                    spots.append((again, -len(text), text))
        spots.sort()
        found: list[float] = []
        end = 0
        for at, _, text in spots:
            if at >= end:
                found.append(self._quality[text])
                end = at + len(text)
        return (found[0], found[1]) if len(found) >= 2 else None

    def _sections(self, prompt: str) -> tuple[float, float] | None:
        last_first: re.Match[str] | None = None
        pair: tuple[re.Match[str], re.Match[str]] | None = None
        for match in _HEADING.finditer(prompt):
            if match[1]:
                last_first = match
            elif last_first is not None:
                pair = (last_first, match)
        if pair is None:
            return None
        # The first line only: the second sample has no known end.
        first, second = (prompt[match.end() :].lstrip().split("\n", 1)[0][:64] for match in pair)
        return self._hashed(first), self._hashed(second)

    def _hashed(self, text: str) -> float:
        raw = blake2b(f"{self._seed}|quality|{text}".encode("utf-8", "surrogatepass"), digest_size=7).digest()
        return int.from_bytes(raw, "big") / (1 << 56)

    def describe(self) -> dict[str, Any]:
        """Return the judges and how many texts they know, ready for JSON."""
        return {"judges": [asdict(judge) for judge in self.judges], "n_qualities": len(self._quality)}


def count_tokens(text: str) -> int:
    """Return the simulators' token count of a text: one per four characters, at least one."""
    return max(1, (len(text) + 3) // 4)


_SAYS = {
    "error_rate": Says.ERROR,
    "refusal_rate": Says.REFUSAL,
    "filtered_rate": Says.FILTERED,
    "empty_rate": Says.EMPTY,
}


_WORDED = frozenset({"both_tags_rate", "tie_rate", "both_good_rate", "both_bad_rate", "unparsed_rate"})


def _gauss(u_a: float, u_b: float) -> float:
    return math.sqrt(-2 * math.log(1 - u_a)) * math.cos(2 * math.pi * u_b)


def _line_starts(prompt: str) -> Iterator[int]:
    at = 0
    while True:
        yield at
        at = prompt.find("\n", at) + 1
        if at == 0:
            return


def _kind(judge: Judge, u: float) -> str:
    for name in RATES:
        u -= getattr(judge, name)
        if u < 0:
            return name
    return ""


def _answers(judge: Judge, prompt: str) -> _Answers | None:
    if judge.answer_first and judge.answer_second:
        return _Answers(judge.answer_first, judge.answer_second, judge.answer_tie, {})
    return _answers_in(tuple(_TAG.findall(prompt)))


@lru_cache(maxsize=1024)
def _answers_in(tags: tuple[tuple[str, str, str], ...]) -> _Answers | None:
    for name in dict.fromkeys(tag for _, tag, _ in reversed(tags)):
        (first, second, tie), kinds = ("", "", ""), dict[str, str]()
        for whole, value in ((whole, value) for whole, tag, value in tags if tag == name):
            word = re.split(r"[^a-z0-9]", value.lower())[-1]
            if word in ("good", "bad"):
                kinds[f"both_{word}_rate"] = whole
            elif word in ("1", "a", "one", "first") or word.endswith("1"):
                first = whole
            elif word in ("2", "b", "two", "second") or word.endswith("2"):
                second = whole
            elif word in _TIE_WORDS:
                tie = whole
        if first and second:
            return _Answers(first, second, tie, kinds)
    return None


def _words(choice: str, answers: _Answers, u: float, n_asked: int | None) -> tuple[str, str]:
    reason = replies.reasons(u, n_asked)
    reason += "\n" if n_asked else ""
    thoughts = f"**Comparing the two samples** I read each in full before deciding. {reason}".strip()
    match choice:
        case "first":
            return reason + answers.first, thoughts
        case "second":
            return reason + answers.second, thoughts
        case "tie_rate" | "both_good_rate" | "both_bad_rate":
            equal = answers.kinds.get(choice) or answers.tie or "The two samples are of equal quality."
            return reason + equal, thoughts
        case "both_tags_rate":
            return f"It is either {answers.first} or {answers.second}.", thoughts
        case _:
            return "It is hard to say which of the two is better.", thoughts
