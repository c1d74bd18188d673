"""Heads whose weights are constructed, put into a random model, are found among all its heads."""

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import mha_core as mha

WORDS = 19
FEATURES = 24  # numbers that say which word it is, and as many for its position and for the word before
D_HEAD = 2 * FEATURES
HEADS, LAYERS, POSITIONS = 5, 2, 64
D_MODEL = HEADS * D_HEAD
WORD, POSITION, BEFORE = (slice(at * FEATURES, (at + 1) * FEATURES) for at in range(3))
SHARP = 40.0
# Layer and head of each. Induction reads the word before, which the head of the previous token has written.
PLANTED = {
    "previous token": (0, 1),
    "next token": (0, 2),
    "first token": (0, 3),
    "duplicate token": (0, 4),
    "induction": (1, 2),
}


def codes(count: int, seed: int) -> torch.Tensor:
    """Unit vectors that are nearly orthogonal."""
    drawn = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=1, keepdim=True)


def waves() -> torch.Tensor:
    """A code of positions of which a rotation makes the next one. (position, FEATURES)"""
    angles = torch.arange(POSITIONS)[:, None] * torch.linspace(0.3, 2.9, FEATURES // 2)
    return torch.cat([angles.cos(), angles.sin()], 1) / (FEATURES / 2) ** 0.5


def turned(by: int) -> torch.Tensor:
    """The rotation from the code of a position to that of another one, `by` positions on."""
    angles = by * torch.linspace(0.3, 2.9, FEATURES // 2)
    cos, sin = angles.cos().diag(), angles.sin().diag()
    return torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])


def plant(model: transformers.BertModel, name: str) -> None:
    """Set the weights of one head; the others stay as they were drawn."""
    layer, head = PLANTED[name]
    attention = model.encoder.layer[layer].attention
    rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
    query, key = torch.zeros(2, D_HEAD, D_MODEL)
    bias = torch.zeros(D_HEAD)
    first, second = slice(0, FEATURES), slice(FEATURES, D_HEAD)
    if name in ("previous token", "next token"):
        query[first, POSITION] = turned(-1 if name == "previous token" else 1).T
        key[first, POSITION] = torch.eye(FEATURES)
    if name == "first token":
        bias[first] = waves()[0]
        key[first, POSITION] = torch.eye(FEATURES)
    if name == "duplicate token":  # the same word, not the same position
        query[first, WORD] = key[first, WORD] = torch.eye(FEATURES)
        query[second, POSITION] = -torch.eye(FEATURES)
        key[second, POSITION] = torch.eye(FEATURES)
    if name == "induction":  # my word is the one before yours
        query[first, WORD] = torch.eye(FEATURES)
        key[first, BEFORE] = torch.eye(FEATURES)
    self_attention = attention.self
    self_attention.query.weight[rows] = SHARP * query
    self_attention.query.bias[rows] = SHARP * bias
    self_attention.key.weight[rows], self_attention.key.bias[rows] = key, 0.0
    if name == "previous token":  # its output is the word that it looks at
        self_attention.value.weight[rows] = 0.0
        self_attention.value.weight[rows][first, WORD] = torch.eye(FEATURES)
        attention.output.dense.weight[:, rows] = 0.0
        attention.output.dense.weight[BEFORE, rows] = torch.eye(FEATURES, D_HEAD)


@pytest.fixture(scope="module")
def model():
    config = transformers.BertConfig(
        vocab_size=WORDS + 4,
        hidden_size=D_MODEL,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        intermediate_size=53,
        max_position_embeddings=POSITIONS,
    )
    torch.manual_seed(3)
    model = transformers.BertModel(config).eval()
    embeddings = model.embeddings
    with torch.no_grad():
        embeddings.word_embeddings.weight[:, WORD] = codes(WORDS + 4, 1)
        embeddings.word_embeddings.weight[:, POSITION.start : BEFORE.stop] = 0.0
        embeddings.position_embeddings.weight[:, : BEFORE.stop] = 0.0
        embeddings.position_embeddings.weight[:, POSITION] = waves()
        embeddings.token_type_embeddings.weight[:] = 0.0
        for name in PLANTED:
            plant(model, name)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    known = {word: n for n, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *map(str, range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")


@pytest.fixture(scope="module")
def atlas(model, tokenizer, tmp_path_factory):
    rng = np.random.default_rng(2)
    texts = []
    for _ in range(40):
        words = rng.permutation(WORDS)[: rng.integers(5, 12)]
        texts.append(" ".join(map(str, [*words, *words])))
    folder = tmp_path_factory.mktemp("planted")
    return mha.atlas(texts, source=model, tokenizer=tokenizer, out=folder / "atlas")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_head_is_first_of_all_heads(name, atlas):
    heads = atlas.heads()
    of_measure = heads[heads["measure"] == name].sort_values("mean", ascending=False)
    best, second = of_measure.iloc[0], of_measure.iloc[1]
    assert (best["layer"], best["head"]) == PLANTED[name]
    assert best["low"] > second["high"]
    assert best["low"] > best["chance"]


def test_shuffled_words_keep_positions_and_break_repetitions(atlas):
    """A head that looks at positions does so in any order; the pair of words that repeats is gone."""
    found = {name: atlas.head(*PLANTED[name]).loc[name] for name in PLANTED}
    for name in ("previous token", "next token", "first token"):
        assert found[name]["shuffled_low"] > found[name]["mean"] - 0.05
    assert found["duplicate token"]["shuffled"] == pytest.approx(found["duplicate token"]["mean"], abs=0.05)
