"""The engine in the browser against torch: `python -m tests.static.referee` compares every shipped model.

300 generated sentences, the hand-written ones (100 at most) and 100 odd ones for each, then 300 random edits.
It prints the largest differences of a weight, a probability and an output, without edits and with them. Edits
are compared with torch in double precision: they make scores larger, and with them torch's own rounding in
single precision. The tests take a part of the same.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from mha_core.atlases import texts
from mha_core.attention.edits import Edit, Hide, Mask, Output, Scale, Temperature, Weights
from mha_core.export import scripts
from mha_core.scene import changes
from mha_core.sources import mini
from mha_core.static import parts
from mha_core.training import checkpoints
from mha_core.training.fit import Plan
from mha_core.training.lexicon import HIDDEN, lexicon
from mha_core.training.questions import written

# Words that no vocabulary has, other scripts, marks that join, numbers, special tokens, and separators.
ODD = """
Straße STRASSE İstanbul ΟΔΟΣ ﬁne ꭰꮃ naïve l’eau didn’t well-known mother‑in‑law 3.14 1,000 12:30 v2.0 7th
½ ² Ⅳ 1️⃣ ... !! -- …… ?! [MASK] [SEP] [CLS] <s> </s> <mask> [mask] <é> [UNK]́ 🙂 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 é
ก็ไม่รู้ ສະບາຍດີ မြန်မာ ភាសា カタカナー ひらがな 한국어 中文 动物 的 “quoted” «non» ⁨bidi⁩ שלום مرحبا नमस्ते
क्षत्रिय zero\u200bwidth soft\u00adhyphen tab\there Zoe walked Running quickly glasses BLICKETS daxed the The
street animal it they she 它 他 累 _under_score a'b'c x-y-z 0x1F #tag @user e.g. U.S.A. ¡hola! Ġword ▁piece
~2 the~2 \u0301alone I'm ‘single’ – — · / \\ 100% $5 ☃️ Ǆ ŉ ß ẞ ı ſ µ ϐ the
"""
RUN = """
const said = [];
const reference = new Float32Array(file("reference").buffer);
const model = new SmallModel(file("model"));
const lexicon = new Lexicon(JSON.parse(new TextDecoder().decode(file("words"))));
let [at, most] = [0, 0];
for (const { text, link } of JSON.parse(new TextDecoder().decode(file("texts")))) {
  const { edits, refused } = readEdits(link);
  if (refused.length) throw new Error(refused.join("; "));
  const read = new ReadSentence(model, lexicon, lexicon.cut(text), edits);
  for (const layer of read.layers)
    for (const head of layer.heads)
      for (let query = 0; query < layer.nQuery; query++)
        for (const weight of layer.row(head, query))
          most = Math.max(most, Math.abs(weight - reference[at++]));
  for (const [layer, numbers] of read.layers.entries())
    for (const name of "qkv") {
      const [head, row, column] = [model.facts.h - 1, read.cut.ids.length - 1, model.dK - 1];
      const [step] = stepsToVector(read, { name, layer, head, row, column });
      most = Math.max(most, Math.abs(step.value - numbers[name].data.at(-1)));
    }
  const { pieces, labels, names, ids, unknown } = read.cut;
  said.push({ pieces, labels, names, ids, unknown, special: read.special, nothing: read.nothing,
    questions: [...read.questions], answers: read.answers, outputs: read.layers.at(-1).output(0, 1) });
}
if (at !== reference.length) throw new Error(`${at} of ${reference.length} weights`);
return { said, most: Number.isFinite(most) ? most : 9 };
"""
MODULES = [f"engine/{name}.js" for name in ("model", "lexicon", "sentence", "edits", "vector_steps")]


class Case(NamedTuple):
    """A text and its edits, as a link writes them."""

    text: str
    link: str = ""


class Compared(NamedTuple):
    """The largest differences of weights, of probabilities, and of outputs; everything else was equal."""

    weights: float
    probabilities: float
    outputs: float


def cases(plan: Plan, *, generated: int, by_hand: int, odd: int) -> list[Case]:
    """Texts of each kind; for a decoder without hidden words."""
    language = plan.language
    name = {"en": "small", "zh": "small-zh"}[language]
    made_up = [one.text for one in texts.read(name, linked=False, count=generated)]
    hand = dict.fromkeys(one.text for half in written(language).values() for one in half)
    rng, pieces = Random("odd"), ODD.split()
    mixed = [" ".join(rng.choices(pieces, k=rng.choice((1, 3, 8, 20)))) for _ in range(odd)]
    words, long = lexicon(language), []
    for text in mixed:
        part = words.sentences(text, limit=64)[0] if text.strip("\u200b ") else "it"
        long.append(part)
    if odd:
        long[-1] = " ".join(["it"] * 63)  # as long as a model reads
    every = (*made_up, *islice(hand, by_hand), *long)
    if plan.is_decoder:
        every = [text for text in every if words.number[HIDDEN] not in words.cut(text, limit=64)[1]]
    return [Case(text) for text in every]


def edited(plan: Plan, count: int) -> list[Case]:
    """Texts with random edits, up to three each."""
    rng, found = Random(f"edits {plan}"), []
    for case in cases(plan, generated=count, by_hand=0, odd=0):
        length = len(lexicon(plan.language).cut(case.text, limit=64)[0])
        drawn = [_edit(rng, plan, length) for _ in range(rng.choice((1, 1, 2, 3)))]
        given = any(type(one) is Weights and one.values is not None for one in drawn)
        if given and any(isinstance(one, Hide | Mask) for one in drawn):
            drawn = drawn[:1]  # a row of one's own may put weight on a hidden cell, which is refused
        found.append(Case(case.text, changes.write(dict.fromkeys(drawn))))
    return found


def _edit(rng: Random, plan: Plan, length: int) -> Edit:
    layer = rng.choice((None, *range(len(plan.layers))))
    heads = rng.choice((None, rng.randrange(plan.h)))
    row, key = rng.randrange(length), rng.randrange(length)
    weights = [rng.random() * (at <= row or not plan.is_decoder) for at in range(length)]
    shares = tuple(int(1e4 * one / sum(weights)) / 1e4 for one in weights)
    drawn: list[Callable[[], Edit]] = [
        lambda: Hide(layer=layer, heads=heads, rows=rng.choice((None, row)), keys=key),
        lambda: Hide(layer=layer, heads=heads, rows=row),
        lambda: Output(layer=layer, heads=heads),
        lambda: Weights(layer=layer, heads=heads, rows=rng.choice((None, row))),
        lambda: Weights(values=shares, layer=layer, heads=heads, rows=row),
        lambda: Scale(layer=layer, factor=1 / rng.choice((1.0, 2.5, 16.0))),
        lambda: Temperature(layer=layer, temperature=rng.choice((0.5, 4.0))),
        lambda: changes.change_of(
            "mask", {"mask": rng.choice(("causal", "window:1", "prefix:3", "padding:2"))}
        ),
        lambda: changes.change_of("concatenated", {"layer": None if layer is None else layer + 1}),
        lambda: changes.change_of("position", {"code": "none"}),
    ]
    return rng.choice(drawn)()


def compare(javascript: Callable, plan: Plan, given: Sequence[Case]) -> Compared:
    """The differences of the engine from torch over these cases. Asserts that the rest is equal."""
    trained = mini.model(plan)
    if any(case.link for case in given):
        trained = replace(trained, model=deepcopy(trained.model).double())
    traces = [
        mini.follow(trained, case.text, edits=changes.edits_of(changes.read(case.link)[0])) for case in given
    ]
    weights = [layer.weights().ravel() for trace in traces for layer in trace.layers]
    files = {
        "model": parts.model(plan),
        "words": parts.words(plan.language),
        "texts": json.dumps([case._asdict() for case in given]).encode(),
        "reference": np.concatenate(weights).astype("<f4").tobytes(),
    }
    answer = javascript(MODULES, RUN, **files)
    probability, output = 0.0, 0.0
    for case, trace, said in zip(given, traces, answer["said"], strict=True):
        probability = max(probability, _same(case, trace, said))
        values = trace.layers[-1].output(0)[1]
        output = max(output, float(np.abs(values - np.array(said["outputs"])).max()))
    return Compared(answer["most"], probability, output)


def _same(case: Case, trace: "mini.AttentionTrace", said: dict) -> float:
    """The largest difference of a probability. Tokens, names and words of answers are equal."""
    from mha_core.export import head_view
    from mha_core.focus.token_names import names

    tokens = trace.tokens
    expected = {
        "pieces": list(tokens.pieces),
        "labels": list(tokens.labels),
        "names": list(names(tokens)),
        "unknown": list(tokens.unknown),
        "special": head_view.special(trace)[0],
        "ids": lexicon(trace.source.origin.language).cut(case.text, limit=64)[1],
    }
    assert {name: said[name] for name in expected} == expected, case
    asked = dict(map(tuple, said["questions"]))
    assert list(asked) == list(trace.questions), case
    gap = 0.0
    pairs = [(trace.answers, said["answers"]), *((trace.questions[name], asked[name]) for name in asked)]
    for ours, theirs in pairs:
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None), case
            if one is not None:
                gap = max(gap, _gap(case, one, other))
    if not any(
        abs(a[0][1] - a[1][1]) < 1e-4 for q in trace.questions.values() for a in q if a and len(a) > 1
    ):
        assert said["nothing"] == head_view.questions(trace), case
    return gap


def _gap(case: Case, one: Sequence[tuple[str, float]], other: Sequence[Sequence]) -> float:
    """The same words in the same order, as far as their probabilities tell them apart."""
    assert len(one) == len(other), case
    ours, theirs = dict(one), dict(map(tuple, other))
    for (word, share), (word_there, _) in zip(one, other, strict=True):
        apart = [abs(share - of) > 2e-5 for name, of in one if name != word]
        if all(apart) and (word, share) != one[-1]:
            assert word == word_there, (case, one, other)
    return max(abs(share - theirs.get(word, share)) for word, share in ours.items())


def main() -> int:
    """Compare every shipped model over everything, and print a line for each."""
    worst = [0.0, 0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:

        def javascript(modules: list[str], code: str, **files: bytes) -> dict:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            imports = "".join(
                f'import * as m{n} from "{(scripts.FOLDER / name).as_uri()}";\n'
                for n, name in enumerate(modules)
            )
            names = "const { SmallModel, Lexicon, ReadSentence, readEdits, stepsToVector } = "
            names += "Object.assign({}, " + ", ".join(f"m{n}" for n in range(len(modules))) + ");\n"
            start = 'import { readFileSync } from "node:fs";\n'
            start += f"const file = (name) => new Uint8Array(readFileSync(`{folder}/${{name}}`));\n"
            written = f"{imports}{start}{names}const run = async () => {{ {code} }};\n"
            plain = "(_, v) => v instanceof Map ? [...v] : ArrayBuffer.isView(v) ? Array.from(v) : v"
            written += f"process.stdout.write(JSON.stringify(await run(), {plain}));"
            done = subprocess.run(
                ["node", "--input-type=module", "-e", written], stdout=subprocess.PIPE, check=True
            )
            return json.loads(done.stdout)

        for plan in checkpoints.PLANS:
            if len(sys.argv) > 1 and not checkpoints.name(plan).startswith(tuple(sys.argv[1:])):
                continue
            given = cases(plan, generated=300, by_hand=100, odd=100)
            plain, changed = (compare(javascript, plan, some) for some in (given, edited(plan, 300)))
            print(checkpoints.name(plan), len(given), *map("{:.1e}".format, (*plain, *changed)), flush=True)
            worst = [max(three) for three in zip(worst, plain, changed, strict=True)]
    print("largest:", *map("{:.1e}".format, worst))
    return 0


if __name__ == "__main__":
    sys.exit(main())
