"""A model's own matrices: copied only when read, and refused if they changed since."""

import copy
import pickle

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mha_core as mha
from mha_core.attention.module import AttentionSpec, MultiHeadAttention, Projections
from mha_core.sources.huggingface import model as huggingface
from mha_core.traces.projections import SYMBOLS, GroupedProduct, ModelProjections, Part
from tests.sources import tiny

IDS = {"input_ids": torch.arange(3, 16)[None]}


class OnGpu(torch.Tensor):
    """A tensor that pretends to be on another device and records each copy."""

    is_cpu = False
    brought: list

    @staticmethod
    def of(tensor: torch.Tensor, brought: list) -> "OnGpu":
        made = tensor.as_subclass(OnGpu)
        made.brought = brought
        return made

    def detach(self) -> "OnGpu":
        return OnGpu.of(super().detach(), self.brought)

    def to(self, device: str) -> torch.Tensor:
        self.brought.append(tuple(self.shape))
        return self.as_subclass(torch.Tensor).clone()


@pytest.fixture
def layer():
    """A module that is trained further, and a layer of a trace of it."""
    torch.manual_seed(2)
    module, x = MultiHeadAttention(AttentionSpec(14, 2)), torch.randn(1, 3, 14)
    return module, mha.LayerTrace.of(module(x), x=x, projections=module.projections())


def train(module: torch.nn.Module) -> None:
    module(torch.randn(1, 3, 14)).output.sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def test_matrices_on_another_device_are_copied_once_on_request():
    brought: list = []
    widths = {"w_q": 4, "w_k": 5, "w_o": 6}
    matrices = {name: OnGpu.of(torch.randn(3, width), brought) for name, width in widths.items()}
    known = ModelProjections(matrices)
    assert known.known == ("w_q", "w_k", "w_o")
    assert brought == []
    assert torch.equal(known.w_k, matrices["w_k"].as_subclass(torch.Tensor))
    assert known.w_k is known.w_k
    assert known.w_v is None
    assert brought == [(3, 5)]
    assert [matrix is None for matrix in known] == [name not in widths for name in SYMBOLS]
    assert brought == [(3, 5), (3, 4), (3, 6)]


class Made(TorchDispatchMode):
    """The shapes of all tensors that are made, views of others not counted."""

    def __init__(self):
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and func._schema.returns[0].alias_info is None:
            self.shapes.append(tuple(out.shape))
        return out


@pytest.mark.parametrize("family", ["gpt_neox", "llama"])
def test_a_trace_copies_no_matrix_until_somebody_asks(family):
    model = huggingface.adopt(tiny.module(family))
    width = model.module.config.hidden_size
    with Made() as made:
        [first, *_], *_ = huggingface.flow(model, IDS)
        assert first.knows("w_q")
        assert (1, 13, width) in made.shapes  # what is computed is seen
        assert not [shape for shape in made.shapes if len(shape) == 2 and shape[0] == width]
        shape = tuple(first.projections.w_q.shape)
    # Of GPT-NeoX the columns of q, k and v lie between each other; all others are parts as they lie.
    assert (shape in made.shapes) == (family == "gpt_neox")


@pytest.mark.parametrize("name", ["w_q", "b_k", "w_o"])
def test_a_changed_matrix_is_refused_by_name(layer, name, refused):
    module, trace = layer
    weights, before = trace.weights(), getattr(trace.projections, name).clone()
    assert torch.equal(getattr(trace.projections, name), before)
    train(module)
    assert str(refused(getattr, trace.projections, name)) == (
        f"{SYMBOLS[name]} is the model's own, and the model has changed it since this trace was made, as "
        f"training does. Trace again, or save a trace before: a file has its own."
    )
    assert trace.knows(name)
    assert (trace.weights() == weights).all()


def test_only_results_that_need_a_changed_matrix_are_refused(layer, refused):
    module, trace = layer
    output = trace.output()
    other = trace.projections._replace(w_q=torch.zeros(14, 14))
    assert other.w_q.sum() == 0
    assert torch.equal(other.w_k, trace.projections.w_k)
    assert torch.equal(other[1], trace.projections[1])
    train(module)
    every = (lambda: list(trace.projections)), trace.projections._asdict
    for view in (trace.contribution, trace.result, *every):
        assert "has changed it" in str(refused(view))
    assert (trace.output() == output).all()
    again = mha.LayerTrace.of(module(torch.randn(1, 3, 14)), projections=module.projections())
    assert again.projections.w_o.data_ptr() == module.o.weight.data_ptr()  # on the CPU nothing is copied


def test_files_and_copies_have_matrices_of_their_own(layer, tmp_path, refused):
    module, own = layer
    trace = mha.AttentionTrace(mha.words("how are you"), (own,), {"name": "a"})
    result, before = own.result(), own.projections.w_q.clone()
    copies = [copy.deepcopy(own.projections), pickle.loads(pickle.dumps(own.projections))]
    trace.save(tmp_path / "t.safetensors")
    train(module)
    assert "W^Q" in str(refused(trace.save, tmp_path / "u.safetensors"))
    assert (mha.load(tmp_path / "t.safetensors").layers[0].result() == result).all()
    for made in copies:
        assert type(made) is Projections
        assert torch.equal(made.w_q, before)


def test_an_earlier_copy_stays():
    with torch.inference_mode():
        whole, columns = torch.randn(6, 8), [1, 4]
    parts = {
        name: Part(of, lambda rows: rows[:, columns]) for name, of in (("w_q", whole), ("b_q", whole[0]))
    }
    known = ModelProjections(parts)
    matrix, bias = whole[:, columns], whole[0][columns]
    for _ in range(2):
        assert torch.equal(known.w_q, matrix)
        assert torch.equal(known.b_q, bias)
        with torch.inference_mode():
            whole.zero_()


@pytest.mark.parametrize("changed", [0, 1])
def test_a_product_is_refused_once_either_of_its_factors_has_changed(changed, refused):
    factors = [torch.randn(2, 3, 5), torch.randn(10, 7)]  # (group, in, rank), (group · rank, out)
    matrices = ModelProjections({"w_o": GroupedProduct(*factors)})
    factors[changed].add_(1.0)
    assert str(refused(getattr, matrices, "w_o")).startswith(
        "W^O is the model's own, and the model has changed"
    )
