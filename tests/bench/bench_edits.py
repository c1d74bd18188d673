"""What does an experiment cost? An edit until it is a picture, and the effects of all heads on an answer.

Run it with ``python tests/bench/bench_edits.py`` (``--quick``: fewer rounds); each of the last lines is one
JSON object with a name, a value and, where there is one, a target. Of the page What if it is the whole run of
its script on the server, and the page without a change is the floor. The masked model has the shape of MiniLM
(6 layers, 12 heads, d_model 384, 30,522 words) and random weights; the ratios are against its own forward
pass of the same text with nothing of ours in it.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import mha_core as mha  # noqa: E402 (from this checkout, also where another is installed)
from mha_core import edits  # noqa: E402

TEXT = "The animal didn't cross the street because it was too tired."
LENGTHS = (16, 64)
MASK = 103
TARGETS = {
    "mini: edit to picture, s": 0.15,
    "page: edit to picture, s": 0.15,
    "mini: all effects, s": 1.0,
    "masked: all effects, 16 tokens, s": 10.0,
}


def seconds(run, rounds: int) -> float:
    """The median of some rounds, after one that is not counted."""
    run()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def of_small_models(rounds: int) -> dict[str, float]:
    trace = mha.trace(TEXT, source="mini", h=8)
    numbers = iter(range(10**6))

    def picture() -> None:
        change = edits.Temperature(layer=1, temperature=1.5 + 0.001 * next(numbers))
        mha.trace(TEXT, source="mini", h=8, edits=[change]).view(beside=trace)

    plain = seconds(lambda: mha.trace(TEXT, source="mini", h=8), rounds)
    effects = seconds(lambda: mha.effects(trace), rounds)
    return {
        "mini: edit to picture, s": seconds(picture, rounds),
        "mini: all effects, s": effects,
        "mini: all effects / one trace": effects / plain,
    }


def of_the_page(rounds: int) -> dict[str, float]:
    """What if on the server, from the message to the end of its run, with the edit that a press brings."""
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_file(ROOT / "pages" / "frame.py", default_timeout=600).run()
    app.switch_page("understand/what_if.py").run()
    numbers = iter(range(10**6))

    def changed(edits: str) -> None:
        app.session_state["edits"] = edits
        app.run()
        assert not app.exception
        lifted = sum((button.key or "").startswith("lift_") for button in app.button)
        assert lifted == bool(edits)

    return {
        "page: no change, s": seconds(lambda: changed(""), rounds),
        "page: edit to picture, s": seconds(
            lambda: changed(f"temperature,layer=2,by={1.5 + 0.001 * next(numbers):.4g}"), rounds
        ),
        "page: two words swapped, s": seconds(
            lambda: changed(f"swap,from=2,to={next(numbers) % 9 + 3}"), rounds
        ),
    }


def of_a_masked_model(rounds: int) -> dict[str, float]:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = BertForMaskedLM(BertConfig(**sizes)).eval().requires_grad_(False)
    door = {"source": model, "tokenizer": tokenizer_of_numbers()}
    results = {}
    for length in LENGTHS:
        ids = [MASK if at == length // 2 else 1000 + at for at in range(length)]
        text = " ".join(map(str, ids))
        trace = mha.trace(text, **door, answers=True)
        row = torch.tensor([ids])

        def plain(row=row) -> None:
            with torch.no_grad():
                model(input_ids=row)

        forward = seconds(plain, rounds)
        for method in ("ablation", "gradient"):
            took = seconds(lambda: mha.effects(trace, method=method, **door), max(1, rounds // 3))  # noqa: B023 (called at once)
            name = f"masked: all effects{'' if method == 'ablation' else ' by gradient'}, {length} tokens"
            results |= {f"{name}, s": took, f"{name} / plain forward": took / forward}
    return results


def tokenizer_of_numbers():
    """A tokenizer whose words are the numbers of BERT's vocabulary."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {str(number): number for number in range(30_522)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, mask_token=str(MASK), unk_token="0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    for name, value in (of_small_models(rounds) | of_the_page(rounds) | of_a_masked_model(rounds)).items():
        print(json.dumps({"name": name, "value": round(value, 4), "target": TARGETS.get(name)}), flush=True)


if __name__ == "__main__":
    main()
