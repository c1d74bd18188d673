"""What all sources share: which source a request goes to, and refusals of unknown arguments."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

import mha_core as mha
from tests.parity import tiny

MODEL = (
    "takes tokenizer, revision, device, dtype, text_pair, target, attention_mask, position_ids, limit, "
    "edits, answers and max_bytes."
)
MINI = "h, d_model, architecture, trained, limit, device and edits"


@pytest.fixture(autouse=True)
def _nothing_is_loaded(monkeypatch):
    monkeypatch.setattr("mha_core.sources.huggingface.model.load", None)


@pytest.mark.parametrize(
    ("settings", "message", "fixes"),
    [
        ({"devce": "cpu"}, "devce is not an argument of source='random'; device is.", ({"device": "cpu"},)),
        (
            {"source": Path("some/model"), "dtyp": "float16"},
            "dtyp is not an argument of source='some/model' (a Hugging Face model); dtype is.",
            ({"dtype": "float16"},),
        ),
        (
            {"source": nn.Linear(1, 1), "tokeniser": None},
            "tokeniser is not an argument of a model in memory (Linear); tokenizer is.",
            ({"tokenizer": None},),
        ),
        ({"n_heads": 3}, "n_heads is not an argument of source='random'; h is.", ({"h": 3},)),
        ({"num_layers": 3}, "num_layers is not an argument of source='random'; layers is.", ({"layers": 3},)),
        ({"embed_dim": 8}, "embed_dim is not an argument of source='random'; d_model is.", ({"d_model": 8},)),
        (
            {"source": "mini", "seed": 1},
            f"seed is an argument of source='random', not of source='mini', which takes {MINI}.",
            ({"source": "random"},),
        ),
        (
            {"source": "mini", "target": "a"},
            f"target is an argument of Hugging Face models, not of source='mini', which takes {MINI}.",
            (),
        ),
        (
            {"source": "gpt2", "h": 4},
            "h is an argument of source='random' and source='mini', not of source='gpt2' (a Hugging Face "
            f"model), which {MODEL}",
            ({"source": "random"}, {"source": "mini"}),
        ),
        (
            {"source": "mini", "num_layers": 1},
            f"num_layers is not an argument of source='mini', which takes {MINI}.",
            (),
        ),
    ],
)
def test_an_argument_that_the_source_does_not_have_is_named(settings, message, fixes, refused):
    for ask, text in ((mha.trace, "x"), (mha.trace_many, ["x"])):
        error = refused(ask, text, **settings)
        assert str(error) == message
        assert error.fixes == fixes


def test_an_invalid_source_or_text_is_refused_by_name_before_a_model_is_loaded(refused):
    for source in (None, 3, ["mini"], object()):
        message = str(refused(mha.trace, "x", source=source))
        told = "source is 'random', 'mini', the id or the folder of a Hugging Face model, or a"
        assert message.startswith(told)
        assert message.endswith("got None." if source is None else f"got a {type(source).__name__}.")
    for source in ("random", "mini", "gpt2"):
        for text in (None, 3, {"a": 1}):
            told = "got None." if text is None else f"got a {type(text).__name__}."
            assert str(refused(mha.trace, text, source=source)).endswith(told)
        for kind in (list, tuple):
            message = str(refused(mha.trace, kind(["One text.", "And another."]), source=source))
            assert message == "mha.trace takes one text; mha.trace_many(texts) takes several."
        for limit in (0, -5, 2.5, "9", None, True):
            message = f"limit is a number of tokens, at least 1; got {limit!r}."
            assert str(refused(mha.trace, "a b", source=source, limit=limit)) == message
    # A model needs a limit of bytes for answers; elsewhere a wrong one would be ignored without an error.
    for source in ("random", tiny.model("gpt2")):
        for value in (0, -5, float("nan"), "9", None, True):
            message = f"max_bytes is a number of bytes, at least 1; got {value!r}."
            assert str(refused(mha.trace, "a b", source=source, max_bytes=value)) == message


@pytest.mark.parametrize("source", ["random", "mini"])
def test_half_of_a_character_is_refused_with_the_rest_of_the_text(source, refused):
    error = refused(mha.trace, "it \ud83d is", source=source)
    assert str(error) == "The text has half of a character (U+D83D); remove it."
    assert error.fixes == ({"text": "it  is"},)
    arrays = dict.fromkeys("qkv", np.ones((1, 2, 3)))
    assert "U+D83D" in str(refused(mha.from_tensors, **arrays, tokens=["it", "\ud83d"]))


def test_ids_are_for_models_alone(refused):
    assert "must be a string; got a ndarray" in str(refused(mha.trace, np.array([1, 2])))
    found = mha.trace_many(["fine", [1, 2]], h=1, d_model=2)
    assert next(found).tokens.text == "fine"
    assert str(refused(next, found)) == "Text 2: The text must be a string; got a list."
