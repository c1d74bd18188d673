"""A small model computes what plain torch computes with the same weights, and a lookup has no way around."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_core.analysis.cost import cost
from mha_core.attention.initialization import normal
from mha_core.training.language import MAX_WORDS
from mha_core.training.model import ARCHITECTURES, D_FF, Block, Lookup, Shape, SmallModel

N_WORDS, LENGTH, D_MODEL, H = 37, 13, 20, 5


def settled(model: SmallModel, seed: int = 0) -> SmallModel:
    """The model with every parameter drawn anew, biases and norms as well, so that none hides as 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + 0.1)
    return model.requires_grad_(False).eval()


def drawn(architecture: str, seed: int = 0, h: int = H, d_model: int = D_MODEL) -> SmallModel:
    return settled(SmallModel(Shape(architecture, h, d_model), N_WORDS), seed)


@pytest.fixture
def ids():
    return torch.randint(3, N_WORDS, (7, LENGTH), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def padding():
    """Sentences of 13, 12, … 7 words."""
    return torch.arange(LENGTH) < torch.arange(LENGTH, LENGTH - 7, -1)[:, None]


@pytest.fixture(params=ARCHITECTURES)
def model(request) -> SmallModel:
    return drawn(request.param)


# Parity with plain torch


def reference(model: SmallModel, ids: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
    """The logits at every position by torch's own modules, given the state of the model."""
    state = model.state_dict()
    d_model, h = model.shape.d_model, model.shape.h

    def norm(x, name):
        return F.layer_norm(x, (d_model,), state[f"{name}.weight"], state[f"{name}.bias"])

    def of_every_head(name):
        """A matrix or bias of q, k or v, with a copy for each of the heads that share it."""
        shared = state[name].unflatten(0, (-1, d_model // h))
        return shared.repeat_interleave(h // len(shared), 0).flatten(0, 1)

    def attention(query, key, value, name):
        if model.shape.architecture == "latent":
            return latent(query, key, value, name)
        theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
        with torch.no_grad():
            theirs.in_proj_weight.copy_(torch.cat([of_every_head(f"{name}.{p}.weight") for p in "qkv"]))
            theirs.in_proj_bias.copy_(torch.cat([of_every_head(f"{name}.{p}.bias") for p in "qkv"]))
            theirs.out_proj.weight.copy_(state[f"{name}.o.weight"])
            theirs.out_proj.bias.copy_(state[f"{name}.o.bias"])
            hidden = None if padding is None else ~padding
            return theirs(query, key, value, key_padding_mask=hidden)[0]

    def latent(query, key, value, name):
        matrices = {
            part: state[f"{name}.{part}.weight"] for part in ("q_up", "kv_down", "kv_norm", "kv_up", "o")
        }

        def made_of(text, half):
            short = text @ matrices["kv_down"].mT
            short = F.rms_norm(short, matrices["kv_norm"].shape, matrices["kv_norm"], 1e-6)
            both = (short @ matrices["kv_up"].mT).unflatten(-1, (h, -1)).transpose(1, 2)
            return both.chunk(2, dim=-1)[half]  # d_k = d_v

        keys, values = made_of(key, 0), made_of(value, 1)
        queries = (query @ matrices["q_up"].mT).unflatten(-1, (h, -1)).transpose(1, 2)
        mask = None if padding is None else padding[:, None, None]
        heads = F.scaled_dot_product_attention(queries, keys, values, mask)
        return heads.transpose(1, 2).flatten(-2) @ matrices["o"].mT

    words = state["embedding"][ids]
    x = words + state["position"][: ids.shape[1]]
    for index, kind in enumerate(ARCHITECTURES[model.shape.architecture]):
        name = f"layers.{index}"
        normed = norm(x, f"{name}.norm")
        if kind == "lookup":
            x = attention(normed, normed, words, f"{name}.attention")
            continue
        x = x + attention(normed, normed, normed, f"{name}.attention")
        inner = F.linear(
            norm(x, f"{name}.mlp_norm"), state[f"{name}.mlp_in.weight"], state[f"{name}.mlp_in.bias"]
        )
        x = x + F.linear(F.gelu(inner), state[f"{name}.mlp_out.weight"], state[f"{name}.mlp_out.bias"])
    return norm(x, "norm") @ state["embedding"].mT + state["bias"]


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_answers_what_plain_torch_answers_with_its_weights(model, ids, padding, padded):
    present = padding if padded else None
    ours = model.logits(model(ids, padding=present)[0])
    theirs = reference(model, ids, present)
    assert ours.shape == (7, LENGTH, N_WORDS)
    real = padding if padded else torch.ones_like(padding)
    torch.testing.assert_close(ours[real], theirs[real], atol=2e-5, rtol=1e-5)
    assert float(theirs.std()) > 0.1


@pytest.mark.parametrize(("h", "d_model"), [(1, 7), (7, 7), (3, 33), (16, 64)])
def test_any_heads_and_width_that_fit_each_other_do(h, d_model, ids):
    for architecture in ARCHITECTURES:
        model = drawn(architecture, h=h, d_model=d_model)
        torch.testing.assert_close(
            model.logits(model(ids)[0]), reference(model, ids, None), atol=2e-5, rtol=1e-5
        )


def test_the_architectures_are_made_of_what_their_names_say():
    layers = {name: [type(layer) for layer in drawn(name).layers] for name in ARCHITECTURES}
    assert layers == {
        "glass-box": [Block, Lookup],
        "standard": [Block, Block],
        "one-layer": [Lookup],
        "grouped-query": [Block, Lookup],
        "multi-query": [Block, Lookup],
        "latent": [Block, Lookup],
    }


def test_heads_share_keys_and_values_as_the_architecture_says():
    kept = {name: cost(Shape(name, 4, 20).spec, 1).cache for name in ARCHITECTURES}
    shared = {"grouped-query": 20, "multi-query": 10, "latent": 10}
    assert kept == dict.fromkeys(("glass-box", "standard", "one-layer"), 40) | shared


def test_the_parameters_can_be_counted_by_hand():
    attention, norm, d = 4 * (20 * 20 + 20), 2 * 20, 20
    mlp = (d * D_FF + D_FF) + (D_FF * d + d)
    outside = N_WORDS * d + MAX_WORDS * d + norm + N_WORDS
    expected = {
        "one-layer": outside + norm + attention,
        "glass-box": outside + (norm + attention + norm + mlp) + (norm + attention),
        "standard": outside + 2 * (norm + attention + norm + mlp),
        "grouped-query": outside + (norm + norm + mlp) + norm + 2 * (attention - 2 * (20 * 10 + 10)),
        "multi-query": outside + (norm + norm + mlp) + norm + 2 * (attention - 2 * (20 * 15 + 15)),
        "latent": outside + (norm + norm + mlp) + norm + 2 * (2 * 20 * 20 + 20 * 10 + 10 + 10 * 2 * 20),
    }
    for name, count in expected.items():
        assert sum(p.numel() for p in drawn(name, h=4).parameters()) == count


# Some rows, and padding


@pytest.mark.parametrize("padded", [False, True])
def test_some_rows_are_those_rows_of_all(model, ids, padding, padded):
    present = padding if padded else None
    rows = torch.tensor([[6, 0, 3, 3]]).expand(7, -1).clone()
    rows[1] = torch.tensor([1, 5, 2, 0])
    some, flows = model(ids, rows=rows, padding=present)
    every, all_flows = model(ids, padding=present)
    expected = torch.stack([every[i, rows[i]] for i in range(7)])
    torch.testing.assert_close(some, expected, atol=1e-5, rtol=1e-5)
    assert flows[-1].attended.q.shape[2] == 4
    assert flows[-1].attended.k.shape[2] == LENGTH
    for flow, whole in zip(flows[:-1], all_flows[:-1], strict=True):
        torch.testing.assert_close(flow.attended.output, whole.attended.output)


def test_words_are_answered_alike_with_and_without_padding_behind_them(model, ids, padding):
    together = model(ids, padding=padding)[0]
    scribbled = ids.clone()
    scribbled[~padding] = 5
    other = model(scribbled, padding=padding)[0]
    for i, length in enumerate(padding.sum(1).tolist()):
        alone = model(ids[i : i + 1, :length])[0][0]
        torch.testing.assert_close(together[i, :length], alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other[i, :length], alone, atol=1e-5, rtol=1e-5)


def test_a_word_more_changes_the_answers(model, ids):
    """Every position looks at all words: padding that were not hidden would be seen."""
    assert (model(ids)[0][:, :5] - model(ids[:, :5])[0]).abs().max() > 1e-3


def test_what_flowed_is_what_the_layers_got(model, ids):
    words = model.embedding[ids]
    hidden, flows = model(ids)
    x = words + model.position[:LENGTH]
    for layer, flow in zip(model.layers, flows, strict=True):
        torch.testing.assert_close(flow.x, layer.norm(x))
        is_lookup = isinstance(layer, Lookup)
        assert (flow.values is None) is not is_lookup
        if is_lookup:
            assert torch.equal(flow.values, words)
        x = layer(x, words, None, None)[0]
    torch.testing.assert_close(hidden, x)


def test_a_longer_text_than_there_are_positions_for_is_no_silent_nonsense(model):
    with pytest.raises(RuntimeError):
        model(torch.full((1, MAX_WORDS + 1), 3))


# The glass-box has no way around its heads


@pytest.mark.parametrize("architecture", ["glass-box", "one-layer"])
def test_an_answer_is_made_of_weights_and_embeddings_alone(architecture, ids):
    model = drawn(architecture)
    hidden, flows = model(ids)
    attended = flows[-1].attended
    scores = attended.q @ attended.k.mT / (D_MODEL // H) ** 0.5
    matrices = model.layers[-1].attention.projections()
    v = model.embedding[ids] @ matrices.w_v + matrices.b_v
    heads = scores.softmax(-1) @ v.unflatten(-1, (H, -1)).transpose(1, 2)
    joined = heads.transpose(1, 2).flatten(2) @ matrices.w_o + matrices.b_o
    torch.testing.assert_close(hidden, joined, atol=1e-5, rtol=1e-5)


def test_a_lookup_that_looks_everywhere_alike_knows_nothing_of_its_own_residual(ids):
    model = drawn("glass-box")
    lookup, words = model.layers[-1], model.embedding[ids]
    x = torch.randn(7, LENGTH, D_MODEL, generator=torch.Generator().manual_seed(3))
    before = lookup(x, words, None, None)[0]
    changed = x.clone()
    changed[:, 4] += 3.0 * torch.randn(D_MODEL, generator=torch.Generator().manual_seed(5))
    assert (lookup(changed, words, None, None)[0][:, 4] - before[:, 4]).abs().max() > 1e-3
    matrices = lookup.attention.projections()
    for part in (matrices.w_q, matrices.w_k, matrices.b_q, matrices.b_k):
        part.zero_()
    uniform = lookup(x, words, None, None)[0]
    assert torch.equal(lookup(changed, words, None, None)[0], uniform)
    torch.testing.assert_close(uniform[:, 0], uniform[:, 4])
    # An ordinary block keeps its residual.
    block = model.layers[0]
    assert (
        block(changed, words, None, None)[0][:, 4] - block(x, words, None, None)[0][:, 4]
    ).abs().max() > 0.1


@pytest.mark.parametrize("architecture", ["glass-box", "one-layer"])
@pytest.mark.parametrize("seen", [0, 5, 12])
def test_who_looks_at_one_word_gets_that_word_through_both_matrices(architecture, seen, ids):
    model = drawn(architecture)
    only = torch.zeros(7, LENGTH, dtype=torch.bool)
    only[:, seen] = True
    hidden, _ = model(ids, padding=only)
    matrices = model.layers[-1].attention.projections()
    expected = (model.embedding[ids[:, seen]] @ matrices.w_v + matrices.b_v) @ matrices.w_o + matrices.b_o
    torch.testing.assert_close(hidden, expected[:, None].expand_as(hidden), atol=1e-5, rtol=1e-5)


# The start


def test_the_start_follows_from_the_seed_alone():
    shape = Shape("glass-box", 4, 12)
    torch.manual_seed(1)
    first = SmallModel(shape, N_WORDS, seed=3).state_dict()
    torch.manual_seed(2)
    again, other = (SmallModel(shape, N_WORDS, seed=seed).state_dict() for seed in (3, 5))
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), name
        if "norm" not in name and not name.endswith("bias") and name != "position":
            assert not torch.equal(tensor, other[name]), name


def test_the_layers_and_matrices_start_apart_from_each_other():
    state = SmallModel(Shape("standard", 4, 12), N_WORDS).state_dict()
    matrices = [t for name, t in state.items() if name.startswith("layers") and t.shape == (12, 12)]
    assert len(matrices) == 8
    for i, one in enumerate(matrices):
        assert not any(torch.allclose(one, other) for other in matrices[i + 1 :])


@pytest.mark.parametrize("architecture", ["glass-box", "standard", "one-layer"])
def test_each_matrix_starts_with_the_numbers_that_belong_to_its_name(architecture):
    """Shipped weights follow from the seed, so a matrix has the same start however it is multiplied."""
    model = SmallModel(Shape(architecture, 4, 20), 30, seed=7)
    state = model.state_dict()
    for index, layer in enumerate(model.layers):
        passes = architecture != "standard" and layer in (model.layers[0], model.layers[-1])
        for which in "qkv":
            name = f"layers.{index}.attention.{which}.weight"
            numbers = normal((20, 20), seed=7, name=name, std=20**-0.5)
            if which == "v" and passes:
                numbers = torch.linalg.qr(numbers)[0]
                assert torch.equal(state[f"layers.{index}.attention.o.weight"], numbers.mT)
            assert torch.equal(state[name], numbers), name
            assert not state[f"layers.{index}.attention.{which}.bias"].any()


def test_every_parameter_is_drawn_through_the_state_dict():
    """The start is written into a state dict: its tensors are all that the model has, and no copies."""
    model = SmallModel(Shape("standard", 4, 20), 30)
    for tensor in model.state_dict().values():
        tensor.fill_(5)
    assert all((parameter == 5).all() for parameter in model.parameters())
    assert sum(t.numel() for t in model.state_dict().values()) == sum(p.numel() for p in model.parameters())


def test_no_parameter_is_left_undrawn(model):
    fresh = SmallModel(model.shape, N_WORDS).state_dict()
    for name, tensor in fresh.items():
        assert torch.isfinite(tensor).all(), name
        assert float(tensor.abs().max()) < 10, name
        if name.endswith("norm.weight"):
            assert (tensor == 1).all()
        elif name.endswith("bias"):
            assert (tensor == 0).all()
        else:
            assert float(tensor.std()) > 0.01, name


def test_words_and_places_start_about_as_long_as_each_other():
    fresh = SmallModel(Shape("glass-box", 4, 64), 500)
    torch.testing.assert_close(fresh.position.norm(dim=1), torch.ones(MAX_WORDS), atol=1e-4, rtol=0)
    assert float(fresh.embedding.detach().norm(dim=1).mean()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "h", "d_model"), [("glass-box", 4, 20), ("glass-box", 1, 7), ("one-layer", 3, 33)]
)
def test_a_word_that_all_heads_look_at_arrives_as_itself_at_the_start(architecture, h, d_model, ids):
    model = SmallModel(Shape(architecture, h, d_model), N_WORDS, seed=7).requires_grad_(False)
    for seen in (0, 6):
        only = torch.zeros(7, LENGTH, dtype=torch.bool)
        only[:, seen] = True
        hidden, flows = model(ids, padding=only)
        expected = model.embedding[ids[:, seen]][:, None].expand_as(hidden)
        torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)
        first = flows[0]  # the block of the glass-box passes through as well
        came = (first.x if first.values is None else first.values)[:, seen]
        torch.testing.assert_close(first.attended.output[:, 3], came, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "share"), [("grouped-query", 1 / 2), ("multi-query", 1 / 4), ("latent", 1 / 2)]
)
def test_of_a_word_arrives_what_shared_values_hold(architecture, share, ids):
    """The word's part in the space of the values: as long as its share of the dimensions."""
    model = SmallModel(Shape(architecture, 4, 64), N_WORDS, seed=7).requires_grad_(False)
    only = torch.zeros(7, LENGTH, dtype=torch.bool)
    only[:, 6] = True
    hidden, _ = model(ids, padding=only)
    word = model.embedding[ids[:, 6]][:, None]
    along = (hidden * word).sum(-1) / (word * word).sum(-1)
    assert float(along.mean()) == pytest.approx(share, abs=0.1)
    assert float(F.cosine_similarity(hidden, word, dim=-1).mean()) == pytest.approx(share**0.5, abs=0.1)


def test_an_ordinary_model_does_not_start_with_words_passed_through():
    model = SmallModel(Shape("standard", 4, 20), N_WORDS).requires_grad_(False)
    for layer in model.layers:
        matrices = layer.attention.projections()
        product = matrices.w_v @ matrices.w_o
        assert float((product - torch.eye(20)).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"architecture": "glass box"}, "architecture"), ({"h": 3, "d_model": 64}, "h"), ({"h": 0}, "h")],
)
def test_a_shape_that_cannot_be_is_refused_with_shapes_that_can(settings, name, refused):
    error = refused(Shape, **settings)
    assert any(name in fix for fix in error.fixes)
    for fix in error.fixes:
        Shape(**{**settings, **fix})
