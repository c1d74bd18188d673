"""A small model computes what plain torch computes with the same weights; a lookup has no bypass."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_core.analysis.cost import cost
from mha_core.attention.initialization import normal
from mha_core.training.language import MAX_WORDS
from mha_core.training.model import ARCHITECTURES, D_FF, Lookup, Shape, SmallModel, TransformerBlock
from mha_core.training.questions import HIDDEN_WORD, QUESTIONS, heads_of

N_WORDS, LENGTH, H, D_K = 37, 13, 5, 7
D_MODEL = H * D_K
LENGTHS = torch.tensor([LENGTH, 11, 2])


def with_random_parameters(model: SmallModel, seed: int = 0) -> SmallModel:
    """The model with every parameter random, also biases and norms, so that none is hidden by 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + 0.1)
    return model.requires_grad_(False).eval()


def random_model(architecture: str, seed: int = 0, h: int = H, d_model: int = D_MODEL) -> SmallModel:
    return with_random_parameters(SmallModel(Shape(architecture, h, d_model), N_WORDS), seed)


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
    model: SmallModel, ids: torch.Tensor, padding: torch.Tensor | None, question: str, shift: int = 0
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The input of a question and the weights of every layer, by torch's own modules with equal numbers."""
    state = model.state_dict()
    d_model, h = model.shape.d_model, model.shape.h
    looked = []

    def norm(x, name):
        return F.layer_norm(x, (d_model,), state[f"{name}.weight"], state[f"{name}.bias"])

    def of_every_head(name):
        """A matrix or bias of q, k or v, with a copy for each of the heads that share it."""
        shared = state[name].unflatten(0, (-1, d_model // h))
        return shared.repeat_interleave(h // len(shared), 0).flatten(0, 1)

    def out(name, heads):
        """W^O of a layer, its columns 0 for the heads that are not read."""
        w_o = torch.zeros(d_model, h, d_model // h)
        w_o[:, heads] = state[f"{name}.o.weight"].unflatten(1, (h, -1))[:, heads]
        return w_o.flatten(1)

    def attention(x, name, heads):
        if model.shape.architecture == "latent":
            return latent(x, name, heads)
        theirs = nn.MultiheadAttention(d_model, h, batch_first=True)
        with torch.no_grad():
            theirs.in_proj_weight.copy_(torch.cat([of_every_head(f"{name}.{p}.weight") for p in "qkv"]))
            theirs.in_proj_bias.copy_(torch.cat([of_every_head(f"{name}.{p}.bias") for p in "qkv"]))
            theirs.out_proj.weight.copy_(out(name, heads))
            theirs.out_proj.bias.copy_(state[f"{name}.o.bias"])
            hidden = None if padding is None else ~padding
            output, weights = theirs(x, x, x, key_padding_mask=hidden, average_attn_weights=False)
        looked.append(weights)
        return output

    def latent(x, name, heads):
        matrices = {part: state[f"{name}.{part}.weight"] for part in ("q_up", "kv_down", "kv_norm", "kv_up")}
        short = x @ matrices["kv_down"].mT
        short = F.rms_norm(short, matrices["kv_norm"].shape, matrices["kv_norm"], 1e-6)
        both = (short @ matrices["kv_up"].mT).unflatten(-1, (h, -1)).transpose(1, 2)
        keys, values = both.chunk(2, dim=-1)  # d_k = d_v
        queries = (x @ matrices["q_up"].mT).unflatten(-1, (h, -1)).transpose(1, 2)
        mask = None if padding is None else padding[:, None, None]
        made = F.scaled_dot_product_attention(queries, keys, values, mask)
        equal = torch.eye(x.shape[1]).expand(len(x), h, -1, -1)  # of these values the weights remain
        looked.append(F.scaled_dot_product_attention(queries, keys, equal, mask))
        return made.transpose(1, 2).flatten(-2) @ out(name, heads).mT

    x = state["embedding"][ids] + state["position"][shift : shift + ids.shape[1]]
    kinds = ARCHITECTURES[model.shape.architecture]
    for index, kind in enumerate(kinds):
        name = f"layers.{index}"
        is_last = index == len(kinds) - 1
        read = list(heads_of(h)[question]) if is_last else list(range(h))
        output = attention(norm(x, f"{name}.norm"), f"{name}.attention", read)
        if kind == "lookup":
            x = output
            continue
        x = x + output
        inner = F.linear(
            norm(x, f"{name}.mlp_norm"), state[f"{name}.mlp_in.weight"], state[f"{name}.mlp_in.bias"]
        )
        x = x + F.linear(F.gelu(inner), state[f"{name}.mlp_out.weight"], state[f"{name}.mlp_out.bias"])
    return x, looked


def check_parity(model, ids, padding=None, shift=0) -> None:
    real = torch.ones_like(ids, dtype=torch.bool) if padding is None else padding
    passed = model(ids, padding=padding, shift=shift)
    state = model.state_dict()
    for question in model.questions:
        theirs, looked = reference(model, ids, padding, question, shift)
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


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_computes_what_plain_torch_does_with_its_weights(model, ids, padding, padded):
    check_parity(model, ids, padding if padded else None)


@pytest.mark.parametrize(("h", "d_model"), [(1, 7), (7, 7), (2, 22), (3, 33), (4, 28), (16, 64)])
def test_any_fitting_h_and_d_model_give_the_numbers_of_plain_torch(h, d_model, ids, padding):
    for architecture in ARCHITECTURES:
        check_parity(random_model(architecture, h=h, d_model=d_model), ids, padding)


# Each question reads its own heads


@pytest.mark.parametrize("h", [1, 2, 3, 4, 5, 8, 16])
def test_the_gates_are_the_heads_of_each_question_and_none_for_one_that_is_not_asked(h):
    model = random_model("one-layer", h=h, d_model=16 if h == 16 else 8 * h)
    assert model.questions == heads_of(h)
    gates = model.gates((*QUESTIONS, HIDDEN_WORD))
    assert gates.shape == (7, h)
    for row, question in zip(gates, (*QUESTIONS, HIDDEN_WORD), strict=True):
        assert row.nonzero()[:, 0].tolist() == [*heads_of(h).get(question, ())]
        assert {*row.tolist()} <= {0.0, 1.0}


def test_only_the_heads_of_a_question_learn_from_its_answer(ids):
    model = random_model("glass-box").requires_grad_(True)
    model.read(model(ids), "object").square().sum().backward()
    attention = model.layers[-1].attention
    learned = attention.o.weight.grad.unflatten(1, (H, -1)).abs().amax((0, 2))
    assert (learned > 0).tolist() == [False, False, True, False, False]


def test_single_words_read_what_they_read_among_all(model, ids, padding):
    passed = model(ids, padding=padding)
    sentence, position = torch.tensor([2, 0, 1, 0]), torch.tensor([1, 12, 3, 3])
    asked = ("doer", "after", HIDDEN_WORD, "noun")
    rows = model.read_rows(passed, sentence, position, model.gates(asked))
    assert rows.shape == (4, D_MODEL)
    for row, i, at, question in zip(rows, sentence, position, asked, strict=True):
        torch.testing.assert_close(row, model.read(passed, question)[i, at], atol=1e-5, rtol=1e-5)
    alike = model.read_rows(passed, sentence, position, model.gates(("noun",)))  # one question for all
    torch.testing.assert_close(alike, model.read(passed, "noun")[sentence, position], atol=1e-5, rtol=1e-5)


def test_some_words_have_the_scores_that_they_have_among_all(model, ids):
    read = model.read(model(ids), "noun")
    some = torch.tensor([30, 4, 4])
    torch.testing.assert_close(model.logits(read, some), model.logits(read)[..., some])
    torch.testing.assert_close(model.logits(read, slice(11)), model.logits(read)[..., :11])


# The architectures


def test_the_architectures_are_made_of_what_their_names_say():
    layers = {name: [type(layer) for layer in random_model(name).layers] for name in ARCHITECTURES}
    assert layers == {
        "glass-box": [TransformerBlock, Lookup],
        "standard": [TransformerBlock, TransformerBlock],
        "one-layer": [Lookup],
        "grouped-query": [TransformerBlock, Lookup],
        "multi-query": [TransformerBlock, Lookup],
        "latent": [TransformerBlock, Lookup],
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
        assert sum(p.numel() for p in random_model(name, h=4, d_model=20).parameters()) == count


# Positions, and padding


def test_a_shift_moves_the_positions_and_nothing_else(model, ids, padding):
    check_parity(model, ids, padding, shift=17)
    moved = deepcopy(model)
    moved.position.copy_(model.position.roll(-17, 0))
    shifted, rolled = model(ids, padding=padding, shift=17), moved(ids, padding=padding)
    assert torch.equal(shifted.x, rolled.x)
    assert torch.equal(shifted.heads, rolled.heads)
    assert (shifted.x - model(ids, padding=padding).x).abs().max() > 1e-2
    model.position.copy_(model.position[:1].expand_as(model.position))  # all places alike
    assert torch.equal(model(ids, shift=17).heads, model(ids).heads)


def test_words_are_answered_alike_with_and_without_padding_behind_them(model, ids, padding):
    scribbled = ids.clone()
    scribbled[~padding] = 5
    passed = [model(some, padding=padding) for some in (ids, scribbled)]
    for question in model.questions:
        together, other = (model.read(of, question) for of in passed)
        for i, length in enumerate(LENGTHS.tolist()):
            alone = model.read(model(ids[i : i + 1, :length]), question)[0]
            torch.testing.assert_close(together[i, :length], alone, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(other[i, :length], alone, atol=1e-5, rtol=1e-5)


def test_unhidden_padding_would_change_the_answers(model, ids):
    """Every position looks at all words: padding that were not hidden would be seen."""
    more, fewer = (model.read(model(some), "noun")[:, :5] for some in (ids, ids[:, :5]))
    assert (more - fewer).abs().max() > 1e-3


def test_flows_are_the_inputs_and_outputs_of_the_layers(model, ids):
    passed = model(ids)
    x = model.embedding[ids] + model.position[:LENGTH]
    for layer, flow in zip(model.layers, passed.flows, strict=True):
        torch.testing.assert_close(flow.x, layer.norm(x))
        before, x = x, layer.result(x, layer.attention(flow.x).output)
    torch.testing.assert_close(passed.x, before)
    q, k, v = passed.flows[-1].attended[1:4]
    shared = H // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    heads = ((q @ k.mT) / D_K**0.5).softmax(-1) @ v
    torch.testing.assert_close(passed.heads, heads.transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_a_text_longer_than_the_positions_raises_an_error(model):
    for length, shift in ((MAX_WORDS + 1, 0), (MAX_WORDS, 1)):
        with pytest.raises(RuntimeError):
            model(torch.full((1, length), 3), shift=shift)


# The last layer of the glass-box is the textbook's attention, and has no way around its heads


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


def test_a_uniform_lookup_has_no_information_about_its_word(ids):
    """A block keeps the word beside its heads; after a lookup a question reads only the heads."""

    def answers(architecture):
        model = random_model(architecture)
        different = model.read(model(ids), "noun")
        matrices = model.layers[-1].attention.projections()
        for part in (matrices.w_q, matrices.w_k, matrices.b_q, matrices.b_k):
            part.zero_()
        return different, model.read(model(ids), "noun")

    for architecture in ("glass-box", "one-layer"):
        different, alike = answers(architecture)
        assert float(different.std(1).max()) > 1e-3
        torch.testing.assert_close(alike, alike[:, :1].expand_as(alike), atol=1e-5, rtol=1e-5)
    assert float(answers("standard")[1].std(1).max()) > 0.1


# The start


def test_initial_weights_depend_only_on_the_seed():
    shape = Shape("glass-box", 4, 12)
    torch.manual_seed(1)
    first = SmallModel(shape, N_WORDS, seed=3).state_dict()
    torch.manual_seed(2)
    again, other = (SmallModel(shape, N_WORDS, seed=seed).state_dict() for seed in (3, 5))
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), name
        if "norm" not in name and not name.endswith("bias") and name != "position":
            assert not torch.equal(tensor, other[name]), name


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


def test_words_and_positions_start_with_similar_lengths():
    fresh = SmallModel(Shape("glass-box", 4, 64), 500)
    torch.testing.assert_close(fresh.position.norm(dim=1), torch.ones(MAX_WORDS), atol=1e-4, rtol=0)
    assert float(fresh.embedding.detach().norm(dim=1).mean()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "h", "d_model"), [("glass-box", 4, 20), ("glass-box", 1, 7), ("one-layer", 3, 33)]
)
def test_at_initialization_a_word_that_all_heads_look_at_passes_unchanged(architecture, h, d_model, ids):
    model = SmallModel(Shape(architecture, h, d_model), N_WORDS, seed=7).requires_grad_(False)
    for seen in (0, 6):
        only = torch.zeros(len(ids), LENGTH, dtype=torch.bool)
        only[:, seen] = True
        for flow in model(ids, padding=only).flows:  # the block of the glass-box passes through as well
            came = flow.x[:, seen][:, None].expand_as(flow.x)
            torch.testing.assert_close(flow.attended.output, came, atol=1e-5, rtol=1e-5)


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


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"architecture": "glass box"}, "architecture"), ({"h": 3, "d_model": 64}, "h"), ({"h": 0}, "h")],
)
def test_an_invalid_shape_is_refused_with_valid_ones(settings, name, refused):
    error = refused(Shape, **settings)
    assert any(name in fix for fix in error.fixes)
    for fix in error.fixes:
        Shape(**{**settings, **fix})
