"""What was recorded of one attention layer: q, k, v or weights, its score rule, and what else is known.

Its tensors lie on the CPU and are copies, but for the projections, which are the module's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from mha_core.attention import Attended, Projections
from mha_core.errors import MhaError
from mha_core.rule import ScoreRule

NAMES = {"q": "The queries", "k": "The keys", "v": "The values"}


@dataclass(frozen=True, eq=False)
class Recorded:
    """The tensors of one layer by name, its rule and its matrices; `LayerTrace` says what each is."""

    tensors: Mapping[str, Tensor] = field(repr=False)  # q, k, v or weights, and what is known of x, x_v
    rule: ScoreRule = field(default=ScoreRule(), repr=False)
    projections: Projections = field(default=Projections(), repr=False)
    kind: str = "self"
    name: str = ""
    about: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @classmethod
    def of(
        cls,
        attended: Attended,
        *,
        x: Tensor | None = None,
        x_v: Tensor | None = None,
        projections: Projections = Projections(),
        item: int = 0,
        **described: object,
    ) -> Self:
        """Keep one item of a batch: the batch axis ends here, and so do the GPU and autograd.

        `described` are the layer's kind, name and what is known about it.
        """
        tensors = {"q": attended.q, "k": attended.k, "v": attended.v}
        tensors |= {name: given for name, given in (("x", x), ("x_v", x_v)) if given is not None}
        return cls(
            MappingProxyType({name: owned(tensor[item]) for name, tensor in tensors.items()}),
            attended.rule.item(item).mapped(shared),
            Projections(*(None if matrix is None else plain(matrix) for matrix in projections)),
            **described,
        )

    # Sizes

    @property
    def n_heads(self) -> int:
        return self._rows.shape[0]

    @property
    def n_kv_heads(self) -> int:
        return self.tensors["k" if self.knows("k") else "weights"].shape[0]

    @property
    def n_query(self) -> int:
        return self._rows.shape[1]

    @property
    def n_key(self) -> int:
        return self.tensors["k"].shape[1] if self.knows("k") else self.tensors["weights"].shape[2]

    @property
    def d_k(self) -> int:
        return self._known("q").shape[2]

    @property
    def d_v(self) -> int:
        return self._known("v").shape[2]

    @property
    def d_model(self) -> int | None:
        """The width of X and Z, None where neither X nor W^O is known."""
        if "x" in self.tensors:
            return self.tensors["x"].shape[1]
        return None if self.projections.w_o is None else self.projections.w_o.shape[1]

    @property
    def scale(self) -> float:
        """What raw scores are multiplied with, ``1/√d_k`` unless the rule says otherwise."""
        return self.rule.factor(self.d_k)

    # What flowed

    @cached_property
    def q(self) -> np.ndarray:
        """Queries. (head, query, d_k)"""
        return array(self._known("q"))

    @cached_property
    def k(self) -> np.ndarray:
        """Keys. (kv_head, key, d_k)"""
        return array(self._known("k"))

    @cached_property
    def v(self) -> np.ndarray:
        """Values. (kv_head, key, d_v)"""
        return array(self._known("v"))

    @cached_property
    def x(self) -> np.ndarray | None:
        """The layer's input, None where it is not known. (query, d_model)"""
        return array(self.tensors["x"]) if "x" in self.tensors else None

    @cached_property
    def x_v(self) -> np.ndarray | None:
        """What V is made of, None where that is x. (key, d_model)"""
        return array(self.tensors["x_v"]) if "x_v" in self.tensors else None

    # What is known

    def knows(self, name: str) -> bool:
        """Was the tensor of that name recorded?"""
        return name in self.tensors

    def kept(self, name: str) -> np.ndarray:
        """The tensor that was recorded under a name, as `tensors` has it."""
        return array(self._known(name))

    def _known(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise MhaError(
                f"{NAMES.get(name, name)} of this layer are not known; ask for its weights instead."
            )
        return self.tensors[name]

    @property
    def _rows(self) -> Tensor:
        """A tensor with all heads and queries."""
        return self.tensors["q" if self.knows("q") else "weights"]

    def kv_head(self, head: int) -> int:
        """The key/value head that query head `head` uses: neighbours share one."""
        return self.checked(head) // (self.n_heads // self.n_kv_heads)

    def checked(self, head: int) -> int:
        """`head` itself, if the layer has it."""
        if not 0 <= head < self.n_heads:
            raise MhaError(
                f"This layer has heads 0 to {self.n_heads - 1}; head {head} was asked for.",
                fixes=({"head": min(max(head, 0), self.n_heads - 1)},),
            )
        return head


def plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu")


def shared(tensor: Tensor) -> Tensor:
    """The tensor itself, so that layers can share one mask, unless it is a part of something larger."""
    tensor = plain(tensor)
    return tensor if tensor.untyped_storage().nbytes() <= tensor.nbytes else tensor.clone()


def owned(tensor: Tensor) -> Tensor:
    """A copy in plain order: it keeps no batch alive, and nobody else can change it."""
    return plain(tensor).clone(memory_format=torch.contiguous_format)


def array(tensor: Tensor) -> np.ndarray:
    """A read-only array; half precision, which numpy only half knows, becomes float32 exactly."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    array = tensor.numpy().view()
    array.setflags(write=False)
    return array
