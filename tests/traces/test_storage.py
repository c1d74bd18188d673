"""A saved trace loads exactly, a damaged file is refused, and a failed save destroys nothing."""

import copy
import errno
import json
import os
import pickle
import random
import resource
import stat
import struct
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mha_core as mha
from mha_core import device
from mha_core.attention.module import Projections
from mha_core.traces import storage
from mha_core.traces.tensors import shared


def assert_same(one, other):
    """Assert that two traces are equal to the last bit."""
    for name in ("tokens", "source", "answers", "questions"):
        assert getattr(one, name) == getattr(other, name)
    assert one.tokens.labels == other.tokens.labels
    for ours, theirs in zip(one.layers, other.layers, strict=True):
        for name in ("kind", "name", "about", "sides"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert ours.sides.same == theirs.sides.same
        for first, second in (
            (ours.tensors, theirs.tensors),
            (ours.rule.tensors(), theirs.rule.tensors()),
            (ours.projections._asdict(), theirs.projections._asdict()),
        ):
            assert set(first) == set(second)
            for name, tensor in first.items():
                if tensor is None:
                    assert second[name] is None
                else:
                    assert tensor.dtype == second[name].dtype
                    assert torch.equal(tensor, second[name])
        for name in ("scale", "soft_cap", "temperature"):
            assert getattr(ours.rule, name) == getattr(theirs.rule, name)


@pytest.fixture
def saved_file(tmp_path):
    """A small saved trace."""
    path = tmp_path / "small.safetensors"
    mha.trace("How are you?", h=3, d_model=15, mask="causal").save(path)
    return path


# Round trips


def test_a_saved_trace_loads_exactly(trace, tmp_path):
    trace.save(tmp_path / "t.safetensors")
    assert_same(mha.load(tmp_path / "t.safetensors"), trace)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_shared_rule_is_loaded_for_each_layer(rule, dtype, make_layer, tmp_path):
    layers = (make_layer(rule, dtype=dtype), make_layer(rule, dtype=dtype, seed=1))
    trace = mha.AttentionTrace(mha.words("the old cat saw the new cat"), layers, {"name": "by hand"})
    trace.save(tmp_path / "t.safetensors")
    assert_same(mha.load(tmp_path / "t.safetensors"), trace)


@pytest.fixture
def with_answers(own_values) -> mha.AttentionTrace:
    """Values of an input of their own, answers, questions, and a word that the source does not know."""
    nouns = ((("[CLS]", 0.5), ("dog", 0.25)), None, (("cat", 1.0),), None, None)
    tokens = replace(own_values.tokens, unknown=(1, 4))
    layers = tuple(replace(layer, sides=mha.Sides(tokens, tokens)) for layer in own_values.layers)
    questions = {"noun": nouns, "doer": (None,) * 5}
    return mha.AttentionTrace(tokens, layers, own_values.source, nouns, questions=questions)


@pytest.fixture
def little_known(normal) -> mha.AttentionTrace:
    """Neither x nor matrices are known."""
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    layer = mha.LayerTrace.of(module(normal(2, 3, 15)), item=1)
    return mha.AttentionTrace(mha.words("動物 <s> é"[:6]), (layer,), {"name": "unknown", "seed": None})


@pytest.fixture
def tied(normal) -> mha.AttentionTrace:
    """A matrix and its transpose in one memory, and two layers that share all: other strides, one address."""
    module = mha.MultiHeadAttention(mha.AttentionSpec(15, 3)).requires_grad_(False)
    w_q = normal(15, 15)
    made = [
        (module(normal(1, 3, 15)), Projections(w_q, w_q.mT)),
        *[(module(normal(1, 3, 15)), module.projections())] * 2,
    ]
    layers = tuple(mha.LayerTrace.of(attended, projections=known) for attended, known in made)
    return mha.AttentionTrace(mha.words("a b c"), layers, "tied")


@pytest.mark.parametrize("name", ["with_answers", "little_known", "tied", "translation", "known_by_weights"])
def test_a_trace_of_every_kind_loads_exactly_and_over_the_file_it_came_from(name, request, tmp_path):
    trace, path = request.getfixturevalue(name), tmp_path / "t.safetensors"
    trace.save(path)
    loaded = mha.load(path)
    assert_same(loaded, trace)
    loaded.save(path)
    assert_same(mha.load(str(path)), trace)


def test_a_mask_that_layers_share_is_written_once(tmp_path):
    sizes = []
    for layers in (1, 3):
        path = tmp_path / f"{layers}.safetensors"
        mha.trace("a " * 499, h=1, d_model=2, layers=layers, mask="causal").save(path)
        sizes.append(path.stat().st_size)
    assert sizes[0] > 499 * 499
    assert sizes[1] < 2 * 499 * 499


# Refusals


def test_a_missing_file_and_a_folder_are_refused(tmp_path, refused):
    path = tmp_path / "nowhere.safetensors"
    assert str(refused(mha.load, path)) == f"There is no file {path}."
    assert str(refused(mha.load, tmp_path)).startswith(f"{tmp_path} cannot be read as a saved trace: ")


def test_a_file_that_may_not_be_read_is_not_called_missing(saved_file, refused, monkeypatch):
    def forbidden(self, *how):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", forbidden)
    message = str(refused(mha.load, saved_file))
    assert message.startswith(f"{saved_file} cannot be read as a saved trace: ")
    assert "Permission denied" in message


def test_a_pipe_is_refused_at_once(tmp_path, refused):
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # so that a test that fails does not wait, either
    try:
        assert str(refused(mha.load, pipe)) == f"{pipe} cannot be read as a saved trace: it is no file."
    finally:
        os.close(writer)


def test_a_foreign_safetensors_file_is_refused(tmp_path, refused):
    path = tmp_path / "weights.safetensors"
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": torch.zeros(2, 3)}, path, metadata=metadata)
        assert str(refused(mha.load, path)) == f"{path} is a safetensors file but not a saved trace."


def test_another_kind_of_file_and_a_truncated_one_are_refused(saved_file, refused):
    content = saved_file.read_bytes()
    (header,) = struct.unpack("<Q", content[:8])
    ends = {0, 1, 7, 8, 9, header // 2, *(header + n for n in (7, 8, 9)), len(content) // 2, len(content) - 1}
    for broken in (b"hello", b"a text file\n" * 99, bytes(99), *(content[:end] for end in ends)):
        saved_file.write_bytes(broken)
        assert str(refused(mha.load, saved_file)) == (
            f"{saved_file} cannot be read as a saved trace: it is broken, or not a safetensors file."
        )


def parts(path):
    """A trace's own header and its tensors, to be changed and written again."""
    with storage.safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[storage.HEADER])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def write(path, header, tensors):
    save_file(tensors, path, metadata={storage.HEADER: json.dumps(header)})


def edited(path, change):
    header, tensors = parts(path)
    change(header, tensors)
    write(path, header, tensors)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, t: h["texts"][0]["pieces"].__setitem__(0, 5),
        lambda h, t: h["texts"][0]["spans"].pop(),
        lambda h, t: h["texts"][0]["words"].pop(),
        lambda h, t: h["texts"][0]["special"].append(7),
        lambda h, t: h["texts"][1]["pieces"].pop(),
        lambda h, t: h["layers"][0].update(kind="sideways"),
        lambda h, t: h["layers"][0].update(kind="cross"),
        lambda h, t: h["layers"][0].update(sides=[0, 2]),
        lambda h, t: h["layers"][0].update(sides=[0]),
    ],
)
def test_a_file_whose_sides_do_not_fit_is_damaged(translation, tmp_path, refused, change):
    path = tmp_path / "t.safetensors"
    translation.save(path)
    edited(path, change)
    assert str(refused(mha.load, path)).startswith((f"{path} is damaged", f"{path} cannot be opened"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (float("nan"), "has numbers that are not finite"),
        (-0.25, "are no attention"),
        (0.5, "are no attention"),
    ],
)
def test_a_file_with_invalid_weights_is_refused(known_by_weights, tmp_path, refused, wrong, reason):
    path = tmp_path / "t.safetensors"
    known_by_weights.save(path)
    edited(path, lambda header, tensors: tensors["0.weights"][1, 2].fill_(wrong))
    assert f"weights of layer 0 {reason}" in str(refused(mha.load, path))


def header(**named):
    return lambda h, t: h.update(named)


def text(*more, **named):
    return lambda h, t: h["texts"][0].update(*more, **named)


def layer(**named):
    return lambda h, t: h["layers"][0].update(named)


def rule(**named):
    return lambda h, t: h["layers"][0]["rule"].update(named)


def tensors(named):
    return lambda h, t: t.update(named)


def latent(short, w_uk):
    names = {"kv_short": "short", "w_uk": "w_uk"}
    return lambda h, t: (h["layers"][0]["tensors"].update(names), t.update(short=short, w_uk=w_uk))


LONG = {"pieces": ["a"] * 60_000, "spans": [[0, 1]] * 60_000}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (header(version=3), "cannot be opened: it has format version 3; this release reads 2."),
        (lambda h, t: t.pop("0.q"), "is damaged: its header does not fit its content (KeyError('0.q'))."),
        # A header of another form
        *((lambda h, t, key=key: h.pop(key), "is damaged") for key in ("version", "texts")),
        (lambda h, t: h["layers"][0].pop("rule"), "is damaged"),
        (lambda h, t: h["layers"][0]["tensors"].pop("k"), "has neither weights nor queries, keys and values"),
        (lambda h, t: h["texts"][0]["pieces"].append("!"), "is damaged"),
        (lambda h, t: h["texts"][0]["spans"].__setitem__(3, [0, 99]), "places of tokens"),
        (text(unknown=[4]), "is damaged"),
        (text(unknown=[True]), "is damaged"),
        (rule(colour=1), "is damaged"),
        (layer(about={"call": True}), "call of Facts is True"),
        (layer(about={"rotary": {"form": "half", "width": 6}}), "rotary code"),
        (layer(sides=[-1, -1]), "is damaged"),
        *((layer(name=name), "the name of layer 0 is") for name in (5, None)),
        (header(source=[1, 2]), "is damaged"),
        # Answers
        (header(answers=[None] * 5), "4 tokens cannot go with 5 answers"),
        (header(answers=[None, ["it"], None, None]), "'i' with probability 't'"),
        (header(answers=7), "is damaged"),
        (header(answers=[[["w", 10**400]]] * 4), "a whole number of 401 digits"),
        (header(answers=[[["w", 1.5]]] * 4), "'w' with probability 1.5"),
        (header(answers=[[["w", True]]] * 4), "'w' with probability True"),
        (header(answers=[[]] * 4), "an answer has no word"),
        (header(answers=[[["w", 0.001]] * 101] * 4), "101 words in an answer; the limit is 100"),
        (header(questions={"noun": [[]] * 4}), "an answer has no word"),
        (header(questions={"noun": [None] * 5}), "5 answers to 'noun'"),
        (header(questions={str(at): [] for at in range(101)}), "101 questions; the limit is 100"),
        # Sizes
        (text(LONG), "it has 60,000 tokens; the limit is 32,768. mha.load(…, limit=60000) reads it."),
        (lambda h, t: h.update(layers=h["layers"] * 30_000), "it has 30,000 layers; the limit is 512."),
        (tensors({"0.q": torch.zeros(1025, 4, 1)}), "it has 1,025 heads; the limit is 1,024."),
        # Tensors that do not fit each other: refused at once, not when somebody looks
        (tensors({"0.rule.mask": torch.zeros(4, 4)}), "mask of layer 0 has the number type float32"),
        (tensors({"0.rule.mask": torch.ones(3, 2).bool()}), "mask of layer 0 has shape (3, 2)"),
        (tensors({"0.x": torch.zeros(3, 15)}), "x of layer 0 has shape (3, 15)"),
        (
            lambda h, t: (t.update(y=torch.zeros(3, 15)), h["layers"][0]["tensors"].update(x_v="y")),
            "x_v of layer 0 has shape (3, 15)",
        ),
        (tensors({"0.q": torch.zeros(4, 5)}), "q of layer 0 has shape (4, 5)"),
        (tensors({"0.q": torch.zeros(3, 4, 0)}), "no size 0"),
        (tensors({"0.k": torch.zeros(3, 4, 7)}), "k of layer 0 has shape (3, 4, 7)"),
        (
            tensors({"0.k": torch.zeros(0, 4, 5), "0.v": torch.zeros(0, 4, 5)}),
            "k of layer 0 has shape (0, 4, 5)",
        ),
        (tensors({"0.w_o": torch.zeros(7, 13)}), "b_o of layer 0 has shape (15,)"),
        (tensors({"0.b_o": torch.zeros(3)}), "b_o of layer 0 has shape (3,)"),
        (tensors({"0.w_q": torch.zeros(12, 15)}), "w_q of layer 0 has shape (15, 12)"),
        (latent(torch.zeros(2, 3), torch.zeros(3, 15)), "kv_short of layer 0 has shape (2, 3)"),
        (latent(torch.zeros(4, 3), torch.zeros(3, 14)), "w_uk of layer 0 has shape (3, 14)"),
        (
            latent(torch.zeros(4, 3), torch.zeros(3, 15).half()),
            "kv_short of layer 0 has the number type float32",
        ),
        (
            latent(torch.full((4, 3), 1e18), torch.full((3, 15), 1e18)),
            "kv_short times w_uk of layer 0 can be",
        ),
        (tensors({"0.q": torch.zeros(3, 4, 5).int()}), "q of layer 0 has the number type int32"),
        (tensors({"0.v": torch.ones(3, 4, 5).bool()}), "number type bool"),
        (lambda h, t: t.update({"0.q": t["0.q"].half()}), "q of layer 0 has the number type float16 and k"),
        (lambda h, t: t.update({"0.b_o": t["0.b_o"].double()}), "w_o of layer 0 has the number type float32"),
        # Numbers
        (rule(scale=float("nan")), "NaN, which is no finite number"),
        (rule(scale=True), "scale of layer 0 is True; it has to be a number or null"),
        (rule(soft_cap=True), "soft_cap of layer 0 is True"),
        (rule(temperature=True), "temperature of layer 0 is True"),
        (rule(temperature=None), "temperature of layer 0 is None; it has to be a number."),
        (lambda h, t: t["0.k"][1, 2].fill_(torch.nan), "k of layer 0 has numbers that are not finite"),
        (lambda h, t: (t["0.q"].fill_(1e20), t["0.k"].fill_(1e20)), "scores can reach 5e+40"),
        (lambda h, t: t["0.w_o"].fill_(3.4e38), "w_o of layer 0 can be too large: it has a length"),
        (lambda h, t: t["0.w_o"].fill_(1e18), "v times w_o of layer 0 can be too large"),
        (lambda h, t: t["0.x"].fill_(1e18), "x times w_q of layer 0 can be too large"),
        (lambda h, t: t["0.b_q"].fill_(1e20), "b_q of layer 0 can be too large"),
    ],
)
def test_a_file_with_invalid_content_is_refused(change, reason, saved_file, refused):
    edited(saved_file, change)
    assert reason in str(refused(mha.load, saved_file))


@pytest.mark.parametrize("header", [[1], 7, "text", {}], ids=str)
def test_an_invalid_header_is_refused(header, saved_file, refused):
    write(saved_file, header, parts(saved_file)[1])
    assert str(refused(mha.load, saved_file)).startswith(f"{saved_file} is damaged: ")


def computed(layer) -> list[np.ndarray]:
    """What pages compute from a layer, with the norms of its vectors."""
    products = [
        layer.x @ getattr(layer.projections, f"w_{name}").numpy()
        + getattr(layer.projections, f"b_{name}").numpy()
        for name in "qkv"
    ]
    found = [layer.q, layer.k, layer.v, layer.output(), layer.contribution(), layer.result(), *products]
    return [*found, layer.scores(), layer.weights(), *(np.linalg.norm(one, axis=-1) for one in found)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_number_that_is_computed_from_an_opened_file_is_finite(dtype, saved_file):
    header, tensors = parts(saved_file)
    largest, outcomes = torch.finfo(dtype).max, []
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        for number in (1.0, largest**0.25, largest**0.5, largest**0.75, largest):
            changed = {other: t.to(dtype) if t.is_floating_point() else t for other, t in tensors.items()}
            changed[name] = torch.full_like(changed[name], number)
            write(saved_file, header, changed)
            try:
                [layer] = mha.load(saved_file).layers
            except mha.MhaError as error:
                outcomes.append((name, str(error)))
            else:
                outcomes.append((name, ""))
                with np.errstate(over="raise", invalid="raise"):
                    assert all(np.isfinite(one).all() for one in computed(layer)), (name, number)
    assert {"", *(said and name.split(".")[1] in said for name, said in outcomes)} == {"", True}


@pytest.mark.parametrize("scale", [2**64, 0], ids=str)
def test_a_whole_scale_counts_as_a_float(scale, saved_file):
    edited(saved_file, lambda header, tensors: header["layers"][0]["rule"].update(scale=scale))
    [layer] = mha.load(saved_file).layers
    assert type(layer.rule.scale) is float
    assert layer.rule.scale == scale
    assert np.isfinite(layer.weights()).all()
    mha.load(saved_file).save(saved_file)


def test_layers_that_share_tensors_are_held_to_what_they_cost(saved_file, refused, monkeypatch):
    monkeypatch.setattr(device, "seconds_per_operation", lambda: 42 / 4032)
    # 3 heads, 4 tokens, d_k = d_v = 5: 48 scores with 2 · 10 + 64 operations each, 4,032 in a layer.
    assert len(mha.load(saved_file, max_flops=4032).layers) == 1
    message = str(refused(mha.load, saved_file, max_flops=4031))
    assert "the scores of its layers (1) take" in message
    assert "at least 42 s on this processor" in message
    assert "A file of fewer layers" in message
    edited(saved_file, lambda header, tensors: header.update(layers=header["layers"] * 100))
    assert len(mha.load(saved_file, max_flops=403_200).layers) == 100
    refused(mha.load, saved_file, max_flops=403_199)


def test_the_memory_limit_holds_for_files(saved_file, refused):
    tensors = parts(saved_file)[1].values()
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors) + 12 * 48
    mha.load(saved_file, max_bytes=needed)
    assert "(max_bytes)" in str(refused(mha.load, saved_file, max_bytes=needed - 1))


@pytest.mark.parametrize("limit", ["limit", "max_bytes", "max_flops"])
@pytest.mark.parametrize("value", [float("nan"), 0, True])
def test_an_invalid_limit_is_refused(limit, value, saved_file, refused):
    """Nothing is larger than NaN, so that it would let every file in."""
    assert f"{limit} is a number of " in str(refused(mha.load, saved_file, **{limit: value}))


def test_a_trace_that_could_not_be_read_is_not_saved_and_a_long_one_is_read_on_request(tmp_path, refused):
    path = tmp_path / "t.safetensors"
    trace = mha.trace("a " * 32_769, h=1, d_model=2, limit=32_769)
    trace.save(path)
    told = "it has 32,769 tokens; the limit is 32,768."
    assert str(refused(mha.load, path)).endswith(f"{told} mha.load(…, limit=32769) reads it.")
    assert str(refused(mha.load, path, max_bytes=10**9)).endswith(told)
    assert_same(mha.load(path, limit=32769), trace)
    path.unlink()
    [layer] = mha.trace("a b c", h=1, d_model=2).layers
    many = mha.AttentionTrace(mha.words("a b c"), (layer,) * 513, "many")
    assert "it has 513 layers; the limit is 512" in str(refused(many.save, path))
    broken = replace(layer, tensors={**layer.tensors, "k": layer.tensors["k"] * torch.nan})
    broken = mha.AttentionTrace(mha.words("a b c"), (broken,), "broken")
    assert "k of layer 0 has numbers that are not finite" in str(refused(broken.save, path))
    assert not list(tmp_path.iterdir())


def test_flipped_bytes_are_refused_or_loaded_and_never_anything_else(saved_file):
    content, draw, refusals = saved_file.read_bytes(), random.Random(1), 0
    (header,) = struct.unpack("<Q", content[:8])
    for nth in range(300):
        damaged = bytearray(content)
        for _ in range(1 if nth % 2 else 3):
            damaged[draw.randrange(header + 16)] ^= 1 << draw.randrange(8)
        saved_file.write_bytes(damaged)
        try:
            mha.load(saved_file)
        except mha.MhaError:
            refusals += 1
    assert refusals > 150


# Saving


def test_a_save_that_cannot_be_described_leaves_nothing_behind(saved_file):
    before = saved_file.read_bytes()
    trace = mha.load(saved_file)
    with pytest.raises(TypeError):
        replace(trace, answers=((("a", object()),),) * len(trace.tokens)).save(saved_file)
    assert saved_file.read_bytes() == before
    assert [path.name for path in saved_file.parent.iterdir()] == [saved_file.name]


def test_a_saved_file_replaces_the_old_one_and_a_reader_of_that_can_finish(saved_file):
    before, new = saved_file.read_bytes(), mha.trace("another text", h=5, d_model=15)
    with saved_file.open("rb") as reader:
        new.save(saved_file)
        assert reader.read() == before
    assert_same(mha.load(saved_file), new)
    assert [path.name for path in saved_file.parent.iterdir()] == [saved_file.name]
    (ordinary := saved_file.parent / "ordinary").touch()
    assert stat.filemode(saved_file.stat().st_mode) == stat.filemode(ordinary.stat().st_mode)


# Without matrices


def test_without_matrices_all_else_comes_back_and_they_are_not_known(trace, tmp_path, refused):
    trace.save(tmp_path / "all.safetensors")
    trace.save(tmp_path / "t.safetensors", matrices=False)
    found = mha.load(tmp_path / "t.safetensors")
    for ours, theirs in zip(trace.layers, found.layers, strict=True):
        for name in ("q", "k", "v", "x", "masked", "weights", "output", "concat"):
            one, other = (getattr(layer, name) for layer in (ours, theirs))
            assert (one() if callable(one) else one).tobytes() == (
                other() if callable(other) else other
            ).tobytes(), name
        assert theirs.projections == Projections()
        assert "W^O" in str(refused(theirs.contribution))
        assert "W^O" in str(refused(theirs.result))
        assert theirs.d_model == ours.d_model
    assert_same(
        replace(trace, layers=tuple(replace(one, projections=Projections()) for one in trace.layers)), found
    )
    weights = sum(m.nbytes for one in trace.layers for m in one.projections if m is not None)
    sizes = [(tmp_path / name).stat().st_size for name in ("all.safetensors", "t.safetensors")]
    assert weights <= sizes[0] - sizes[1] <= weights + 4096  # and what the header says of them


# From process to process


@pytest.mark.parametrize("copied", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy, copy.copy])
def test_a_copy_is_the_same_to_the_last_bit_without_what_was_computed(trace, copied, tmp_path):
    for layer in trace.layers:
        layer.log_sum_exp()
        assert vars(layer).keys() > {field.name for field in fields(layer)}
    found = copied(trace)
    assert_same(found, trace)
    trace.save(tmp_path / "t.safetensors")
    assert len(pickle.dumps(trace)) <= (tmp_path / "t.safetensors").stat().st_size + 1024
    for ours, theirs in zip(trace.layers, found.layers, strict=True):
        kept = {field.name for field in fields(theirs)} | {"_shared"}  # the same tensors by another name
        assert vars(theirs).keys() <= kept
        assert shared(ours.tensors)["q"].data_ptr() != shared(theirs.tensors)["q"].data_ptr()
        assert theirs.weights().tobytes() == copied(ours).weights().tobytes() == ours.weights().tobytes()
        for array in (theirs.q, theirs.x, theirs.weights()):
            assert not array.flags.writeable
        with pytest.raises(TypeError):
            theirs.tensors["q"] = None


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_path_that_is_not_a_file_is_not_replaced(saved_file, tmp_path, make):
    """A pipe instead of /dev/null, which root could replace."""
    make(path := tmp_path / "taken")
    kind = stat.S_IFMT(path.stat().st_mode)
    with pytest.raises(mha.MhaError, match="is no file"):
        mha.load(saved_file).save(path)
    assert stat.S_IFMT(path.stat().st_mode) == kind
    assert {one.name for one in tmp_path.iterdir()} <= {"taken", saved_file.name}


@pytest.mark.parametrize("name", ["a\0b.safetensors", "a\ud800b.safetensors"])
def test_a_name_too_long_for_the_disk_is_refused(name, saved_file, refused):
    message = str(refused(mha.load(saved_file).save, name))
    assert message.startswith("A file is named by its path")
    assert str(refused(mha.load, name)) == message


def test_a_full_disk_raises_oserror_and_leaves_the_old_file_and_nothing_else(saved_file, tmp_path):
    trace, before = mha.trace("another text", h=3, d_model=15), saved_file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        for path in (saved_file, tmp_path / "more.safetensors"):
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                trace.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.iterdir()] == [saved_file]
    assert saved_file.read_bytes() == before
