"""A small model computes what plain torch computes with the same weights; a lookup has no bypass."""

import pytest
import torch
from torch.nn import functional as F

from mha_core.attention.initialization import normal
from mha_core.training.language import MAX_WORDS
from mha_core.training.model import ARCHITECTURES, Shape, SmallModel

N_WORDS, LENGTH, H, D_K = 37, 13, 5, 7
D_MODEL = H * D_K
LENGTHS = torch.tensor([LENGTH, 11, 2])


def random_model(architecture: str, h: int = H, d_model: int = D_MODEL) -> SmallModel:
    """A model with every parameter random, also biases and norms, so that none is hidden by 0 or 1."""
    model, generator = SmallModel(Shape(architecture, h, d_model), N_WORDS), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + 0.1)
    return model.requires_grad_(False).eval()


@pytest.fixture
def ids():
    return torch.randint(3, N_WORDS, (len(LENGTHS), LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def padding():
    """Sentences of 13, 11 and 2 words."""
    return torch.arange(LENGTH) < LENGTHS[:, None]


@pytest.fixture(params=ARCHITECTURES)
def model(request) -> SmallModel:
    return random_model(request.param)


# Parity with plain torch


def reference(
    model: SmallModel, ids: torch.Tensor, padding: torch.Tensor, question: str, shift: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The input of a question and the weights of every layer, by torch's functions with equal numbers."""
    state, h, looked = model.state_dict(), model.shape.h, []

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    def attention(x, name, heads):
        """With only some heads read; those that share keys and values have a copy each."""
        if model.shape.architecture.endswith("latent"):
            scale = state[f"{name}.kv_norm.weight"]
            short = F.rms_norm(linear(x, f"{name}.kv_down"), scale.shape, scale, 1e-6)
            both = linear(short, f"{name}.kv_up").unflatten(-1, (h, -1))
            q, k, v = linear(x, f"{name}.q_up").unflatten(-1, (h, -1)), *both.chunk(2, dim=-1)  # d_k = d_v
        else:
            parts = (linear(x, f"{name}.{p}").unflatten(-1, (-1, model.shape.d_model // h)) for p in "qkv")
            q, k, v = (part.repeat_interleave(h // part.shape[-2], -2) for part in parts)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        later = torch.full(scores.shape[-2:], model.shape.is_decoder).triu(1)
        looked.append(scores.masked_fill(~padding[:, None, None] | later, -torch.inf).softmax(-1))
        read = torch.zeros(h, 1, 1)
        read[list(heads)] = 1
        return linear((read * (looked[-1] @ v)).transpose(1, 2).flatten(-2), f"{name}.o")

    x = state["embedding"][ids] + state["position"][shift : shift + ids.shape[1]]
    kinds = ARCHITECTURES[model.shape.architecture]
    for index, kind in enumerate(kinds):
        name = f"layers.{index}"
        heads = model.shape.questions[question] if index == len(kinds) - 1 else range(h)
        output = attention(norm(x, f"{name}.norm"), f"{name}.attention", heads)
        if kind == "lookup":
            x = output
            continue
        x = x + output
        x = x + linear(F.gelu(linear(norm(x, f"{name}.mlp_norm"), f"{name}.mlp_in")), f"{name}.mlp_out")
    return x, looked


def check_parity(model, ids, padding=None, shift=0) -> None:
    real = torch.ones_like(ids, dtype=torch.bool) if padding is None else padding
    passed = model(ids, padding=padding, **({"shift": shift} if shift else {}))  # by default none
    state = model.state_dict()
    for question in model.questions:
        theirs, looked = reference(model, ids, real, question, shift)
        ours = model.read(passed, question)
        assert ours.shape == (*ids.shape, model.shape.d_model)
        torch.testing.assert_close(ours[real], theirs[real], atol=2e-5, rtol=1e-5)
        logits = F.layer_norm(theirs, theirs.shape[-1:], state["norm.weight"], state["norm.bias"])
        logits = logits @ state["embedding"].mT + state["bias"]
        torch.testing.assert_close(model.logits(ours)[real], logits[real], atol=5e-5, rtol=1e-5)
        assert float(logits.std()) > 0.1
    for flow, weights in zip(passed.flows, looked, strict=True):
        rows = real[:, None].expand(-1, model.shape.h, -1)
        torch.testing.assert_close(flow.weights()[rows], weights[rows], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("padded", "shift"), [(False, 0), (True, 0), (True, 17)])
def test_a_model_computes_what_plain_torch_does_with_its_weights(model, ids, padding, padded, shift):
    check_parity(model, ids, padding if padded else None, shift)


@pytest.mark.parametrize(("h", "d_model"), [(1, 7), (7, 7), (16, 64)])
def test_any_fitting_h_and_d_model_give_the_numbers_of_plain_torch(h, d_model, ids, padding):
    for architecture in ARCHITECTURES:
        check_parity(random_model(architecture, h=h, d_model=d_model), ids, padding)


def test_a_text_longer_than_the_positions_raises_an_error(model):
    for length, shift in ((MAX_WORDS + 1, 0), (MAX_WORDS, 1)):
        with pytest.raises(RuntimeError):
            model(torch.full((1, length), 3), shift=shift)


# In training


def test_a_model_in_training_computes_the_same_numbers(model, ids, padding):
    expected = model(ids, padding=padding)
    passed = model.train()(ids, padding=padding)
    assert torch.equal(passed.heads, expected.heads)
    for flow, other in zip(passed.flows, expected.flows, strict=True):
        assert torch.equal(flow.weights(), other.weights())


@pytest.mark.parametrize(
    ("h", "d_model", "share"), [(2, 64, 0.2), (4, 256, 0.1), (5, 16 * 5, 0.2 * 0.8**0.5)]
)
def test_little_of_the_gradient_passes_through_the_values_of_a_lookup(h, d_model, share, ids):
    """With uniform attention nothing passes through its scores."""
    model = random_model("glass-box", h=h, d_model=d_model).requires_grad_()
    with torch.no_grad():
        model.layers[-1].attention.projections().w_q.zero_()
        model.layers[-1].attention.projections().w_k.zero_()
    first, last = model.layers[0].attention.o.weight, model.layers[-1].attention.o.weight

    def gradients(training: bool) -> tuple[torch.Tensor, ...]:
        passed = model.train(training)(ids)
        return torch.autograd.grad(model.read(passed, "noun").square().sum(), (first, last))

    before, of_last = gradients(training=True)
    expected, of_all = gradients(training=False)
    torch.testing.assert_close(before, share * expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
    torch.testing.assert_close(of_last, of_all)


# The start


@pytest.mark.parametrize("architecture", ["glass-box", "standard", "one-layer"])
def test_each_matrix_starts_with_the_numbers_that_belong_to_its_name(architecture):
    """Shipped weights follow from the seed, so a matrix has the same start however it is multiplied."""
    model = SmallModel(Shape(architecture, 4, 20), 30, seed=7)
    state, deep = model.state_dict(), (2 * len(model.layers)) ** -0.5
    for index, layer in enumerate(model.layers):
        name, made = f"layers.{index}.attention", {}
        for which in "qkvo":
            std = 20**-0.5 * (deep if which == "o" else 1)
            made[which] = normal((20, 20), seed=7, name=f"{name}.{which}.weight", std=std)
            assert not state[f"{name}.{which}.bias"].any()
        if architecture != "standard" and layer in (model.layers[0], model.layers[-1]):
            made["v"] = torch.linalg.qr(made["v"])[0]
            made["o"] = made["v"].mT  # a word that all heads look at passes unchanged
        for which, numbers in made.items():
            assert torch.equal(state[f"{name}.{which}.weight"], numbers), (name, which)


def test_words_and_positions_start_with_similar_lengths():
    fresh = SmallModel(Shape("glass-box", 4, 64), 500)
    torch.testing.assert_close(fresh.position.norm(dim=1), torch.ones(MAX_WORDS), atol=1e-4, rtol=0)
    assert float(fresh.embedding.detach().norm(dim=1).mean()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "share"), [("grouped-query", 1 / 2), ("multi-query", 1 / 4), ("latent", 1 / 2)]
)
def test_with_shared_values_a_words_part_in_their_space_passes(architecture, share):
    """The word's part in the space of the values: as long as its share of the dimensions."""
    model = SmallModel(Shape(architecture, 4, 64), 500, seed=7).requires_grad_(False)
    flow = model(torch.arange(3, 500)[:, None]).flows[-1]  # each word alone looks at itself
    word, arrived = flow.x[:, 0], flow.attended.output[:, 0]
    assert float(F.cosine_similarity(arrived, word).mean()) == pytest.approx(share**0.5, abs=0.1)
    if architecture != "latent":  # which makes all its short vectors equally long
        along = (arrived * word).sum(-1) / (word * word).sum(-1)
        assert float(along.mean()) == pytest.approx(share, abs=0.1)
