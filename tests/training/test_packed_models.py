"""Small models hold a packed matrix in memory, and the four matrices in their files and in their start."""

import pytest
import torch
from safetensors import safe_open

from mha_core import resources
from mha_core.attention.initialization import normal
from mha_core.training import checkpoints
from mha_core.training.fit import Plan, Run
from mha_core.training.model import ARCHITECTURES, Shape, SmallModel

PLAN = Plan(h=2, d_model=8, steps=12)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
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


def test_a_file_has_the_matrices_apart(tmp_path):
    run = Run(PLAN)
    checkpoints.save_model(tmp_path / "model", checkpoints.Trained(run.model, PLAN, 0, {}))
    with safe_open(tmp_path / "model", framework="pt") as file:
        found = {name for name in file.keys() if name.startswith("layers.1.")}  # noqa: SIM118
    parts = {f"attention.{which}.{kind}" for which in "qkvo" for kind in ("weight", "bias")}
    assert found == {f"layers.1.{name}" for name in {"norm.weight", "norm.bias"} | parts}


SHIPPED = sorted(resources.path(*checkpoints.FOLDER).glob("*.safetensors"))


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_each_shipped_file_arrives_in_the_matrices_that_it_names(path):
    model = checkpoints.load_model(path).model
    with safe_open(path, framework="pt") as file:
        for index, layer in enumerate(model.layers):
            own = layer.attention.projections()
            for which in "qkvo":
                name = f"layers.{index}.attention.{which}"
                assert torch.equal(getattr(own, f"w_{which}").mT, file.get_tensor(f"{name}.weight").float())
                assert torch.equal(getattr(own, f"b_{which}"), file.get_tensor(f"{name}.bias").float())


def test_a_training_that_was_saved_goes_on_with_the_same_bits(tmp_path):
    through, stopped = Run(PLAN), Run(PLAN)
    losses = [through.advance(1) for _ in range(9)]
    assert [stopped.advance(1) for _ in range(4)] == losses[:4]
    checkpoints.save_run(tmp_path / "run", stopped)
    resumed = checkpoints.load_run(tmp_path / "run")
    assert [resumed.advance(1) for _ in range(5)] == losses[4:]
    for name, parameter in through.model.named_parameters():
        twin = resumed.model.get_parameter(name)
        assert torch.equal(parameter, twin), name
        for moment in checkpoints.MOMENTS:
            states = through.optimizer.state[parameter], resumed.optimizer.state[twin]
            assert torch.equal(*(state[moment] for state in states)), name
