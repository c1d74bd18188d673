"""YOSO: its matrix has how often hashing is expected to bring a query and a key together."""

import numpy as np
import pytest
import torch

from mha_core.sources.huggingface import model as huggingface
from tests.parity import tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # inside of other people's models


def test_yoso_mixes_by_how_often_keys_are_expected_in_the_bucket_of_a_query():
    model, hidden = huggingface.adopt(tiny.model("yoso")), []
    attention = model.module.yoso.encoder.layer[0].attention.self
    attention.register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    _, skipped, [layer, _] = huggingface.flow(model, {"input_ids": torch.arange(5, 28)[None]})
    heads = (part(hidden[0])[0].unflatten(1, (6, -1)) for part in (attention.query, attention.key))
    q, k = (torch.nn.functional.normalize(part, dim=-1).transpose(0, 1) for part in heads)
    expected = (1 - torch.acos(q @ k.mT) / np.pi) ** attention.hash_code_len
    assert (layer.rule, layer.unit, skipped) == ("expected hash collisions (YOSO)", "head", ())
    np.testing.assert_allclose(layer.mixing(), expected.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"conv_window": 3}, "YosoSelfAttention mixes tokens by other means"),
        ({"use_expectation": False}, "does not run on a text alone"),
    ],
    ids=["a convolution", "hashes by chance"],
)
def test_yoso_with_more_than_expectations_is_refused(own, reason, refused):
    assert reason in str(refused(huggingface.adopt, tiny.model("yoso", **own)))
