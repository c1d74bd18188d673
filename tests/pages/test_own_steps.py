"""The steps around the heads: from the text to the model's own X, and from Z to the X of the next layer."""

import numpy as np
import pytest
import torch

import mha_core as mha
from mha_core.analysis.frames import Crop
from mha_core.sources import mini
from mha_core.training.lexicon import lexicon
from pages._kit import formulas
from pages.understand._steps import own

TEXTS = {"en": "A zebu slept because it was tired.", "zh": "他在酒店订了一个房间。"}


def whole(trace: mha.AttentionTrace, layer: int = 0) -> dict:
    every = own.whole(trace, layer=layer, head=1, part=Crop(), query=2)
    return {step.name: step for step in every}


def small(architecture: str, language: str):
    trace = mha.trace(TEXTS[language], source="mini", architecture=architecture)
    return trace, mini.model(mini.find(language, architecture, 4, 64)).model


@pytest.mark.parametrize("language", TEXTS)
def test_words_and_positions_become_the_x_of_the_first_layer(language):
    trace, model = small("glass-box", language)
    step = whole(trace)["tokens"]
    embeddings, positions = (picture.frame.to_numpy() for picture in step.before)
    [start] = step.after
    np.testing.assert_array_equal(embeddings + positions, start.frame.to_numpy())
    known = lexicon(language).number
    row = embeddings[-1]
    np.testing.assert_array_equal(row, model.embedding[known[trace.tokens.pieces[-1]]])
    with torch.no_grad():
        x = model.layers[0].norm(torch.tensor(start.frame.to_numpy()))
    np.testing.assert_allclose(x, trace.layers[0].x, atol=1e-6)
    assert tuple(start.frame.index) == trace.tokens.labels


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
def test_random_words_and_positions_are_x_itself(position):
    trace = mha.trace("the cat saw the dog", h=2, d_model=8, position=position)
    step = whole(trace)["tokens"]
    np.testing.assert_allclose(step.after[0].frame, trace.layers[0].x, atol=1e-6)
    assert [picture.symbol for picture in step.before] == (["E"] if position == "rotary" else ["E", "P"])
    words = step.before[0].frame.to_numpy()
    np.testing.assert_allclose(words[0], words[3], atol=1e-6)


def test_the_residual_after_a_block_is_what_the_next_layer_reads():
    trace, model = small("standard", "zh")
    step = whole(trace)["add"]
    total, normed = (torch.tensor(picture.frame.to_numpy()) for picture in step.after)
    block = model.layers[0]
    with torch.no_grad():
        after = total + block.mlp_out(torch.nn.functional.gelu(block.mlp_in(normed)))
        np.testing.assert_allclose(model.layers[1].norm(after), trace.layers[1].x, atol=1e-5)
    values = {"torch": torch, "x": torch.tensor(step.before[0].frame.to_numpy())}
    values |= {"z": torch.from_numpy(trace.layers[0].result().copy())}
    exec(step.code, values | (norm := {"gain": block.mlp_norm.weight, "shift": block.mlp_norm.bias}), norm)
    torch.testing.assert_close(norm["y"], normed)
    assert -1 <= step.facts["cosine"] < 1
    assert "add" in whole(trace, 1)
    assert "add" not in whole(small("glass-box", "zh")[0], 1)  # no residual there


@pytest.mark.parametrize("architecture", ["glass-box", "grouped-query", "multi-query", "latent"])
def test_the_class_on_the_page_gives_its_numbers_with_the_file_beside_it(architecture, tmp_path, capsys):
    trace, _ = small(architecture, "zh")
    spec, biases, latent = formulas._found(trace, 1)
    file = tmp_path / "layer.safetensors"
    file.write_bytes(formulas._file(trace, 1, latent))
    exec(formulas.written(spec, biases) + formulas.LOADED.format(file=file), {})
    assert float(capsys.readouterr().out) < 1e-5


def test_latent_attention_is_computed_from_its_latent_vectors():
    trace, model = small("latent", "zh")
    for at, layer in enumerate(trace.layers):
        steps = whole(trace, at)
        project, attention = steps["project"], model.layers[at].attention
        up = attention.kv_up.weight.view(4, 32, 32)
        values = {"torch": torch, "x": layer.tensors["x"], "c_gain": attention.kv_norm.weight}
        values |= {"w_dkv": attention.kv_down.weight.mT, "w_q": attention.q_up.weight.mT}
        values |= {"w_uk": up[:, :16].flatten(0, 1).mT, "w_uv": up[:, 16:].flatten(0, 1).mT}
        exec(f"{project.code}\n{steps['split'].code}", values)
        for name in "qkv":
            torch.testing.assert_close(values[name], layer.tensors[name], atol=1e-6, rtol=0)
        short = next(picture for picture in project.after if picture.name == "latent")
        torch.testing.assert_close(values["c_kv"], torch.tensor(short.frame.to_numpy()))
        for name in "kv":
            [step] = mha.explain(trace, name, layer=at, head=3, key=2, dimension=7).steps
            np.testing.assert_array_equal(step.factors[1], values[f"w_u{name}"][:, 3 * 16 + 7].detach())
            assert step.name == "latent"
        assert r"\underset{32 \times 4{\cdot}16}{W^{UK}}" in project.formula
