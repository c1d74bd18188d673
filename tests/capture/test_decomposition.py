"""What a tensor is the sum of: operations are followed, and the parts added up again are the tensor."""

from threading import Thread

import pytest
import torch
from torch import nn

from mha_core.capture.decomposition import Decomposition, Leaf, NoDecomposition

EMBEDDED = torch.tensor([[1, 4, 2]])


class Stream(nn.Module):
    """A residual stream with a norm and an MLP, whose last step is `end`."""

    def __init__(self, end=lambda x: x, norm=nn.LayerNorm):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.table = nn.Embedding(7, 5)
        self.norm, self.first, self.second, self.query = (
            norm(5),
            nn.Linear(5, 11),
            nn.Linear(11, 5),
            nn.Linear(5, 3),
        )
        self.end = end
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=draw)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        x = x + self.second(nn.functional.gelu(self.first(self.norm(x))))
        return self.end(self.query(self.norm(x)))


def followed(module: nn.Module) -> tuple[Decomposition, torch.Tensor]:
    names = {p.untyped_storage().data_ptr(): name for name, p in module.named_parameters()}
    decomposition = Decomposition(names)
    with torch.no_grad(), decomposition:
        return decomposition, module(EMBEDDED)


def parts(module: nn.Module, heads=lambda leaf: None) -> tuple[list, torch.Tensor]:
    decomposition, result = followed(module)
    return decomposition.sum_of(result, heads).contributions([(0, 1), (0, 2)]), result[0, 1:].double()


def total(found: list) -> torch.Tensor:
    return sum(part.vectors for part in found)


def own_norm(width: int) -> nn.Module:
    """RMSNorm as models write it, in several operations."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(width))
    module.forward = lambda x: module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    return module


def doubled_in_place(x: torch.Tensor) -> torch.Tensor:
    rows = torch.empty_like(x)
    rows[:, 1:] = x[:, 1:]
    rows[:, :1] = 0.0
    rows *= 2
    rows[..., 1:] += x[..., :-1]
    rows[:, 1:][..., :2] = 3 * x[:, 1:, :2]  # a part of a part
    return rows


ENDS = {
    "as it is": lambda x: x,
    "rotated": lambda x: x * torch.cos(torch.arange(3.0)) + x.flip(-1) * torch.sin(torch.arange(3.0)),
    "joined": lambda x: torch.cat([x[..., :1] * 3 - 1, -x[..., 1:] / 4], -1),
    "stacked": lambda x: torch.stack([x, 2 * x]).sum(0),
    "in place": doubled_in_place,
    "chosen": lambda x: torch.where(torch.arange(3) > 0, x, torch.zeros(())),
    "limits that reach nothing": lambda x: x.clamp(-1e6, 1e6),
    "normed once more": lambda x: x / x.norm(dim=-1, keepdim=True),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm, own_norm])
def test_the_parts_sum_to_the_tensor(end, norm):
    found, expected = parts(Stream(ENDS[end], norm))
    torch.testing.assert_close(total(found), expected, atol=1e-5, rtol=1e-5)
    assert {part.leaf.made_by for part in found if not part.leaf.constant} == {"embedding", "gelu"}


def test_each_part_is_what_its_writer_wrote_behind_the_frozen_norm():
    module = Stream()
    found, _ = parts(module)
    by_hand = {}
    with torch.no_grad():
        x = module.table(EMBEDDED)
        written = nn.functional.gelu(module.first(module.norm(x))) @ module.second.weight.mT
        scale = (x + written + module.second.bias).var(-1, correction=0, keepdim=True).add(1e-5).rsqrt()

        def taken(part: torch.Tensor) -> torch.Tensor:
            normed = (part - part.mean(-1, keepdim=True)) * scale * module.norm.weight
            return (normed @ module.query.weight.mT)[0, 1:]

        by_hand["table.weight"], by_hand["second.weight"] = taken(x), taken(written)
        by_hand["second.bias"] = taken(module.second.bias.expand_as(x))
        by_hand["norm.bias"] = (module.norm.bias @ module.query.weight.mT).expand(2, -1)
        by_hand["query.bias"] = module.query.bias.expand(2, -1)
    assert {part.name for part in found} == set(by_hand)
    for part in found:
        torch.testing.assert_close(part.vectors.float(), by_hand[part.name], atol=1e-5, rtol=1e-5)
    assert {part.name for part in found if part.last} == {"norm.bias", "query.bias"}


def test_heads_are_apart_and_a_gate_is_a_part_of_them():
    module = Stream()

    def forward(ids):
        x = module.table(ids)
        values = x.softmax(1).view(1, 3, 5, 1).expand(1, 3, 5, 2)
        values = torch.tanh(values)  # five heads of two numbers, as far as this test goes
        gated = values.flatten(2) * torch.sigmoid(x).repeat_interleave(2, -1)
        return module.query(gated @ weight)

    weight = torch.randn(10, 5, generator=torch.Generator().manual_seed(3))

    def heads(leaf: Leaf) -> torch.Tensor | None:
        if leaf.made_by != "tanh":
            return None
        return torch.stack([leaf.value * (torch.arange(5) == head)[:, None] for head in range(5)])

    module.forward = forward
    found, expected = parts(module, heads)
    torch.testing.assert_close(total(found), expected, atol=1e-5, rtol=1e-5)
    assert sorted(part.head for part in found if part.head is not None) == [0, 1, 2, 3, 4]
    assert not any(part.leaf.made_by == "mul" for part in found)


@pytest.mark.parametrize("limit", [torch.clamp, torch.clamp_])
def test_an_operation_that_changes_a_part_is_a_writer(limit):
    found, expected = parts(Stream(lambda x: limit(x, -0.5, 0.5)))
    assert [part.leaf.made_by for part in found] == ["clamp"]
    torch.testing.assert_close(total(found), expected)


def test_an_unseen_tensor_is_refused():
    decomposition, _ = followed(Stream())
    with pytest.raises(NoDecomposition, match="was not seen"):
        decomposition.sum_of(torch.zeros(2, 3), lambda leaf: None)


def test_threads_follow_their_own_passes():
    expected = [parts(Stream(end))[1] for end in ENDS.values()]
    found: dict[int, torch.Tensor] = {}

    def run(at: int, end) -> None:
        for _ in range(5):
            found[at] = total(parts(Stream(end))[0])

    threads = [Thread(target=run, args=(at, end)) for at, end in enumerate(ENDS.values())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, numbers in enumerate(expected):
        torch.testing.assert_close(found[at], numbers, atol=1e-5, rtol=1e-5)
