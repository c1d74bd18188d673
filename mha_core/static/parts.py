"""The parts that a page without a server is made of: its texts, the words of a language, a small model.

Each is bytes, which `assets/components/engine/` reads.
"""

import json
import struct
from functools import cache

import numpy as np

from mha_core.analysis import roles
from mha_core.export import head_view
from mha_core.scene.first_look import ADJECTIVES
from mha_core.scene.scene import EXAMPLES
from mha_core.sources import mini
from mha_core.traces.source import caption
from mha_core.training import checkpoints
from mha_core.training.fit import Plan
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import LANGUAGES, SPARES, lexicon
from mha_core.training.links import BE

TEXTS = "static."  # prefix of the keys of the page's own texts
# The texts of the page besides those of the head view: all with these prefixes, and some more.
PREFIXES = ("answer.", "share.", TEXTS, "role.", "option.architecture.", "model.layer.")
KEYS = (
    *(f"control.{name}" for name in ("text", "twin", "twin_empty", "example", "h", "d_model")),
    *(f"heads.{name}" for name in ("question", "how", "start", "rewrite", "without", "block")),
    *("control.architecture", "model.trained", "model.trained_decoder", "roles.label"),
    *("language.name", "language.code", "list.comma"),
    *(f"what_if.{name}" for name in ("heading", "kind", "layer", "head", "from", "to", "all", "apply")),
    *(
        f"what_if.{name}"
        for name in ("cut", "off", "row", "lift", "reset", "taken_away", "in_layer", "in_all_layers")
    ),
    *(f"what_if.{name}" for name in ("of_head", "of_heads", "of_all_heads", "every_word", "unordered_says")),
    *(f"what_if.{kind}_says" for kind in ("cut", "off", "even", "row", "mask", "divisor", "temperature")),
    "what_if.concatenated_says",
    "link.refused",
)


@cache
def words(language: str) -> bytes:
    """The words of a small language, and what is known of them. `Lexicon` of engine/lexicon.js reads it."""
    words = lexicon(language)
    kinds = {
        "noun": words.noun_forms,
        "verb": {word for word, classes in words.classes.items() if any("." in name for name in classes)},
        "shown verb": {word for word, kind in words.kinds.items() if kind == "verb"},
        "adjective": {word for word, kind in words.kinds.items() if kind in ADJECTIVES},
        "pronoun": words.pronouns,
        "be": BE,
    }
    packed = {
        "code": language,
        "known": " ".join(words.known),
        "marks": "".join(
            chr(64 + sum((word in kind) << bit for bit, kind in enumerate(kinds.values())))
            for word in words.known
        ),
        "spares": SPARES[language],
        "numbers": " ".join(words.words["number"]),
        "fitting": {
            pronoun: " ".join(sorted(noun for noun, fit in words.fitting.items() if pronoun in fit))
            for pronoun in sorted(words.pronouns)
        },
        "unlisted": " ".join(sorted(words.unlisted)),
        "limit": MAX_WORDS,
    }
    return as_json(packed)


@cache
def model(plan: Plan) -> bytes:
    """A shipped model in half precision, with what is known of it. `SmallModel` of engine/model.js reads it.

    The low bytes of all numbers come first, then the high ones, which compress better.
    """
    trained = checkpoints.load_model(checkpoints.path(plan))
    tensors = {name: tensor.half().numpy() for name, tensor in trained.model.state_dict().items()}
    scores = checkpoints.manifest()[checkpoints.name(plan)]["scores"]
    spec = plan.spec
    facts = {
        "name": checkpoints.name(plan),
        "architecture": plan.architecture,
        "language": plan.language,
        "h": plan.h,
        "d_model": plan.d_model,
        "layers": plan.layers,
        "kv_heads": getattr(spec, "n_kv_heads", plan.h),
        "source": str(caption({"h": plan.h, "d_model": plan.d_model} | mini.source(trained).caption_facts())),
        "steps": plan.steps,
        "seed": plan.seed,
        "questions": trained.model.questions,
        "temperatures": trained.model.temperatures,
        "scores": {question: score["right"] for question, score in scores.get("questions", {}).items()},
        "roles": [(*place, *role) for place, role in roles.labels(roles.shipped(plan)).items()],
        "shapes": {name: tensor.shape for name, tensor in tensors.items()},
    }
    header = as_json(facts)
    numbers = np.concatenate([tensor.ravel() for tensor in tensors.values()]).astype("<f2").view("u1")
    return struct.pack("<I", len(header)) + header + numbers.reshape(-1, 2).T.tobytes()


@cache
def texts() -> bytes:
    """The texts of the page in each language, those of its head view, and the example sentences."""
    said = {}
    for language in LANGUAGES:
        every = head_view.catalogue(language)
        page = {key: text for key, text in every.items() if key.startswith(PREFIXES) or key in KEYS}
        view = head_view.texts(language)
        page["two_sentences"] = view["two_sentences"]
        said[language] = {"page": page, "view": view}
    return as_json({"texts": said, "examples": EXAMPLES, "edition": checkpoints.edition()})


def as_json(value: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()
