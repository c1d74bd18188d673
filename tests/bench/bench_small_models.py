"""What the small models answer and look at on held-out sentences, by question, h, d_model and language.

    python tests/bench/bench_small_models.py [name ...]

Four tables from the manifest, measured in single precision when each model was trained; the rows of the two
famous sentences, read from the files; and how far the files, in half precision, move the held-out scores.
The last lines are the figures that the models are held to: each compares with a floor.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mha_core.sources import mini
from mha_core.training import checkpoints
from mha_core.training.evaluation import question_scores, scores
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import QUESTIONS

# The floors by h, for English models with d_model 64 or more: pronoun right, its head's weight, others right.
FLOORS = {4: {"answer": 0.98, "right": 0.8}, 8: {"answer": 0.98, "right": 0.9}}


def table(names: list[str], columns: dict) -> None:
    """One line for each model and one figure for each column."""
    print(f"{'':26}" + "".join(f"{title:>12}" for title in columns))
    for name in names:
        entry = checkpoints.manifest()[name]["scores"]
        found = [column(entry) for column in columns.values()]
        print(f"{name:26}" + "".join(f"{'-' if one is None else format(one, '.3f'):>12}" for one in found))
    print()


def rows(name: str) -> None:
    """What each head of the last layer looks at most, for every word of the famous sentences."""
    plan = next(plan for plan in checkpoints.PLANS if checkpoints.name(plan) == name)
    trained = mini.model(plan)
    for entry in lexicon(plan.language).grammar["famous"]:
        trace = mini.follow(trained, entry["text"])
        weights, pieces = trace.layers[-1].weights(), trace.tokens.pieces
        print(f"{name}: {entry['text']}")
        for at in range(1, len(pieces)):
            best = [f"{pieces[row.argmax()]} {row.max():.2f}" for row in weights[:, at]]
            said = [f"{question} {found[at][0][0]}" for question, found in trace.questions.items()]
            print(f"  {pieces[at]:10} heads: {' | '.join(best)}")
            print(f"  {'':10} answers: {', '.join(said)}")


def moved(name: str) -> float:
    """The largest change of a share of right answers between the trained numbers and the file, in points."""
    plan = next(plan for plan in checkpoints.PLANS if checkpoints.name(plan) == name)
    model, kept = mini.model(plan).model, checkpoints.manifest()[name]["scores"]
    again = asdict(scores(model, plan.language)) | asdict(question_scores(model, plan.language))
    changes = [
        abs(again[key] - kept[key]) for key in ("answer", "accuracy", "agreement", "shapes", "nothing")
    ]
    changes += [
        abs(again["questions"][q]["right"] - found["right"]) for q, found in kept["questions"].items()
    ]
    return 100 * max(changes)


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or [checkpoints.name(plan) for plan in checkpoints.PLANS]
    print("Held-out nouns: share of right answers among all words of the sentence, by question")
    by_question = {q: lambda s, q=q: s["questions"].get(q, {}).get("right") for q in QUESTIONS}
    table(names, by_question | {"nothing": lambda s: s["nothing"], "hidden": lambda s: s["hidden"]})
    print("Mean weight of the question's best head on the word that answers; divergence of heads in bits")
    weight = {q: lambda s, q=q: s["questions"].get(q, {}).get("weight") for q in QUESTIONS}
    table(names, weight | {"pronoun": lambda s: s["right"], "divergence": lambda s: s["divergence"]})
    print("Pronoun, of two nouns: held-out nouns, held-out shapes, the worst shape, agreement")
    shapes = {"nouns": lambda s: s["answer"], "shapes": lambda s: s["shapes"]}
    worst = {"worst": lambda s: min(s["by_shape"].values()), "agreement": lambda s: s["agreement"]}
    table(names, shapes | worst)
    print("Right of all words with 0 to 3 unknown words, and with 33 to 64 tokens")
    links = {"noun": "pronoun to noun", "doer": "verb to subject", "object": "verb to object"}
    unknown = {
        f"{short} {n}": lambda s, n=n, link=link: s["unknown"][str(n)][link]
        for short, link in links.items()
        for n in range(4)
    }
    table(names, unknown)
    table(names, {f"{short} long": lambda s, link=link: s["long"][link] for short, link in links.items()})
    for name in names:
        rows(name)
    what = "points moved by half precision"
    results = [{"name": f"{name}: {what}", "value": round(moved(name), 3), "target": 0.1} for name in names]
    for name in names:
        entry = checkpoints.manifest()[name]
        plan, found = entry["plan"], entry["scores"]
        floors = FLOORS.get(plan["h"], {})
        if plan["architecture"] == "glass-box" and plan["language"] == "en" and plan["d_model"] >= 64:
            for score, floor in floors.items():
                results.append({"name": f"{name}: {score}", "value": found[score], "target": floor})
    size = sum(file.stat().st_size for file in checkpoints.path(checkpoints.PLANS[0]).parent.iterdir())
    results.append({"name": "megabytes of all weights", "value": round(size / 1e6, 1), "target": 42})
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
