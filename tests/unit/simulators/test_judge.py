"""Simulated judges answer from a latent quality, with exactly the bias and faults planted in them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from batchpond_sim import SimulatorError
from batchpond_sim.judges.judge import Judge, Panel, Says, parse_judge
from tests.rigs.simulator import FIRST, SECOND, api, line, prompt

GOOD = "The tide had gone out further than anyone in the village could remember."
POOR = "It was a good day and I did things and then I went home and it was good."


def _panel(*judges: str, seed: int = 0) -> Panel:
    panel = Panel(seed)
    panel.judges = tuple(parse_judge(spec) for spec in judges)
    panel.register([(GOOD, 0.9), (POOR, 0.1)])
    return panel


def _share_first(panel: Panel, text: str, n: int = 2000, model: str = "m") -> float:
    return sum(FIRST in panel.answer(model, text, str(i)).text for i in range(n)) / n


def test_the_better_sample_wins_in_either_order() -> None:
    panel = _panel("*:sharpness=50")
    assert _share_first(panel, prompt(GOOD, POOR), 50) == 1
    assert _share_first(panel, prompt(POOR, GOOD), 50) == 0


@pytest.mark.parametrize("bias", [0.0, 0.8, -1.5])
def test_a_planted_position_bias_is_the_logit_of_choosing_first_among_equals(bias: float) -> None:
    share = _share_first(_panel(f"*:position_bias={bias}"), prompt(GOOD, GOOD), 4000)
    expected = 1 / (1 + math.exp(-bias))
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_noise_flattens_the_preference() -> None:
    sharp = _share_first(_panel("*:sharpness=5"), prompt(GOOD, POOR))
    noisy = _share_first(_panel("*:sharpness=5,noise=10"), prompt(GOOD, POOR))
    assert 0.5 < noisy < sharp - 0.1


def test_rates_of_faults_are_those_planted() -> None:
    spec = "*:tie_rate=0.1,refusal_rate=0.1,filtered_rate=0.05,unparsed_rate=0.1,both_tags_rate=0.1"
    spec += ",empty_rate=0.05,error_rate=0.1"
    said = [_panel(spec).answer("m", prompt(GOOD, POOR), str(i)) for i in range(3000)]
    shares = {says: sum(one.says is says for one in said) / len(said) for says in Says}
    for says, rate in ((Says.REFUSAL, 0.1), (Says.FILTERED, 0.05), (Says.EMPTY, 0.05), (Says.ERROR, 0.1)):
        assert abs(shares[says] - rate) < 0.025
    texts = [one.text for one in said if one.says is Says.TEXT]
    both = sum(FIRST in text and SECOND in text for text in texts) / len(said)
    neither = sum(FIRST not in text and SECOND not in text for text in texts) / len(said)
    assert abs(both - 0.1) < 0.025
    assert abs(neither - 0.2) < 0.03


def test_judges_differ_by_model_and_by_template_and_the_first_that_suits_speaks() -> None:
    panel = _panel("gpt-*:text=Template B,position_bias=-50", "gpt-*:position_bias=50")
    assert _share_first(panel, prompt(GOOD, GOOD), 50, "gpt-5.4") == 1
    assert _share_first(panel, "Template B\n" + prompt(GOOD, GOOD), 50, "gpt-5.4") == 0
    assert 0.2 < _share_first(panel, prompt(GOOD, GOOD), 300, "o5") < 0.8


def test_one_request_has_one_answer_and_repeats_differ() -> None:
    panel, text = _panel(), prompt(GOOD, GOOD)
    assert panel.answer("m", text, "k1") == _panel().answer("m", text, "k1")
    assert len({panel.answer("m", text, str(i)).text for i in range(20)}) > 1
    assert panel.answer("m", text, "k1") != _panel(seed=1).answer("m", text, "k1")


def test_the_same_request_is_answered_alike_whichever_attempt_carries_it(tmp_path: Path) -> None:
    with api(tmp_path) as sim:
        body = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": prompt("a", "b")}]}
        texts = []
        for attempt in ("attempt001", "attempt002"):
            data = "\n".join(line(f"{attempt}-request{i}", body) for i in range(30)).encode()
            rows = sim.rows(sim.finished(data)["output_file_id"])
            texts.append({row["custom_id"].split("-")[1]: row["response"]["body"]["choices"] for row in rows})
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "text",
    [
        prompt(GOOD, POOR),
        f"First: {GOOD} Second: {POOR}\nSay {FIRST} or {SECOND}",
        f"<SAMPLE_1>{GOOD}</SAMPLE_1><SAMPLE_2>{POOR}</SAMPLE_2> {FIRST} {SECOND}",
        f"> {GOOD}\n> {POOR}\n {FIRST}{SECOND}",
        f"x{GOOD}y{POOR}z {FIRST}{SECOND}",
    ],
)
def test_registered_samples_are_found_wherever_a_template_puts_them(text: str) -> None:
    assert _panel().qualities(text) == (0.9, 0.1)


def test_a_registered_text_inside_another_is_not_counted() -> None:
    panel = _panel()
    panel.register([(f"{GOOD}\n{POOR}", 0.5), ("short", 0.3)])
    assert panel.qualities(prompt(f"{GOOD}\n{POOR}", POOR)) == (0.5, 0.1)
    assert panel.qualities(prompt("short", GOOD)) == (0.3, 0.9)


def test_marks_and_unknown_samples_have_qualities_too() -> None:
    panel = _panel()
    assert panel.qualities(prompt("[[quality=0.25]] a", "b [[quality=-1]]")) == (0.25, -1.0)
    one, two = Panel(0).qualities(prompt("An unknown text.", "Another one.")) or (0, 0)
    assert (two, one) == Panel(0).qualities(prompt("Another one.", "An unknown text."))
    assert one != two


def test_answer_tags_come_from_the_prompt_or_the_judge() -> None:
    asked = f"1:\n{GOOD}\n2:\n{POOR}\nReply <W>A</W>, <W>B</W> or <W>TIE</W>."
    assert "<W>A</W>" in _panel("*:sharpness=90").answer("m", asked, "k").text
    assert "<W>TIE</W>" in _panel("*:tie_rate=1").answer("m", asked, "k").text
    fixed = _panel("*:sharpness=90,answer_first=ONE,answer_second=TWO")
    assert fixed.answer("m", f"{POOR}\n{GOOD}", "k").text.endswith("TWO")
    assert _panel().answer("m", "Hello", "k").text.startswith("A simulated answer")


def test_qualities_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "qualities.jsonl"
    assert Panel(0, path).register([(GOOD, 0.9), (POOR, 0.1), (POOR, 0.2)]) == 2
    with path.open("ab") as file:
        file.write(b'{"text":"cut off by a cra')
    assert Panel(0, path).qualities(prompt(GOOD, POOR)) == (0.9, 0.2)


@pytest.mark.parametrize(
    "spec", ["*:bias=1", "*:tie_rate=much", "*:tie_rate=0.6,refusal_rate=0.6", "*:tie_rate=-1", "*:noise=nan"]
)
def test_bad_judges_are_refused(spec: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        parse_judge(spec)
    assert spec in caught.value.message


def test_judges_can_be_written_as_text_or_json() -> None:
    wanted = Judge(model="gpt-5*", position_bias=0.5, text="a,b")
    assert parse_judge('{"model":"gpt-5*","position_bias":0.5,"text":"a,b"}') == wanted
    assert parse_judge("gpt-5*:position_bias=0.5") == Judge(model="gpt-5*", position_bias=0.5)
