"""A layer without softmax that mixes tokens linearly in their values, and its mixing matrix.

Gated DeltaNet, Kimi's delta attention, lightning attention, Mamba, RWKV, mLSTM, RG-LRU and short convolutions
carry a state along the text instead of comparing each query with each key. For known decays and gates, the
output of each token is still a weighted sum of the values, so there is a matrix. FNet has two matrices, of
cosines and of sines, which are the same for all texts of a length. The matrix of YOSO has the expected number
of hash collisions for each query and key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mha_core.errors import MhaError, one_of
from mha_core.traces.indices import LAYER, index
from mha_core.traces.tensors import Copies, array, shared

UNITS = ("head", "channel", "component")  # the units that have their own matrix
MAX_NUMBERS = 1 << 27  # in all matrices of a layer at once
# The largest allowed difference of M V to the recorded output, divided by the largest |M| |V|.
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
FULL_PRECISION = 1e-5  # the kernels compute in float32, also for float64

Matrices = Callable[[Sequence[int]], Tensor]  # heads -> (head, query, key)


@dataclass(frozen=True, eq=False)
class MixerTrace:
    """One layer without softmax that mixes tokens linearly in their values, ``gate · (M V) + bias``.

    `tensors` has v and output, (head, token, d_v), and if the layer has them gate, (head, token, d_v), and
    bias, (head, 1, d_v). `matrices` computes M for the selected heads; a trace from a file has mixing, (head,
    query, key), among its tensors instead. `rule` is the name of the computation, for example "gated delta
    rule". `unit` is the part of the layer with its own matrix, which counts as a head here: a "head" of d_v
    values, a "channel" of one value, or a "component" of FNet's transform (first the cosines, then the sines;
    their outputs are added). If `convolution` is not 0, a convolution over this many neighbouring tokens made
    each value.

    Sources: Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"; Ali, Zimerman and Wolf 2024, "The
    Hidden Attention of Mamba Models"; Dao and Gu 2024, "Transformers are SSMs"; Lee-Thorp et al. 2022, "FNet:
    Mixing Tokens with Fourier Transforms", equation 3.
    """

    tensors: Mapping[str, Tensor] = field(repr=False)
    rule: str
    unit: str = "head"
    name: str = ""
    convolution: int = 0
    matrices: Matrices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", Copies(self.tensors))
        one_of("unit", self.unit, UNITS, parameter="unit")

    @cached_property
    def _shared(self) -> Mapping[str, Tensor]:
        return shared(self.tensors)

    @property
    def n_heads(self) -> int:
        return self._shared["v"].shape[0]

    @property
    def n_tokens(self) -> int:
        return self._shared["v"].shape[1]

    @property
    def d_v(self) -> int:
        return self._shared["v"].shape[2]

    def held(self) -> list[Tensor]:
        """All tensors of the layer, without the model's tensors behind `matrices`."""
        return list(self._shared.values())

    @property
    def v(self) -> np.ndarray:
        """Values. (head, token, d_v)"""
        return array(self._shared["v"])

    def output(self) -> np.ndarray:
        """The output of the layer's own code, before its norm and its output matrix. (head, token, d_v)"""
        return array(self._shared["output"])

    def mixing(self, head: int | None = None) -> np.ndarray:
        """The mixing matrix M: the factor of each value in each output. ([head,] query, key)

        Its numbers are signed, and rows need not sum to 1. The model's own code, run with unit vectors in
        place of the values, computes the matrix. It is compared with the recorded output: ``|gate · (M V) +
        bias − output|`` is at most 1e-5 of the largest ``|M| |V|`` (3e-2 in bfloat16, 4e-3 in float16).
        Raises `MhaError` if the difference is larger, for a head that the layer does not have, and if the
        matrices of all heads together are too large.
        """
        heads = range(self.n_heads) if head is None else [self.head_index(head)]
        size = len(heads) * self.n_tokens**2
        if size > MAX_NUMBERS:
            raise MhaError(
                "The matrices of all {n_heads} {unit}s have {size:,} numbers, at most "
                "{limit:,} can be had at once; ask for one, as in head=0.",
                n_heads=self.n_heads,
                unit=self.unit,
                size=size,
                limit=MAX_NUMBERS,
                fixes=({"head": 0},),
            )
        mixing = self.proven(heads)
        return array(mixing if head is None else mixing[0])

    def weights(self, head: int | None = None, **_: object) -> np.ndarray:
        """Raises `MhaError`: a layer without softmax has no weights; `mixing` is its matrix."""
        raise MhaError(
            "{name} is no softmax attention ({rule}), so it has no weights that sum to 1; {call} is the "
            "signed matrix by which it mixes the tokens.",
            name=self.name or LAYER,
            rule=self.rule,
            call="mixing()" if head is None else f"mixing(head={head})",
        )

    def head_index(self, head: int) -> int:
        """The index of a head or channel, from 0; ``-1`` is the last one."""
        return index("head", head, self.n_heads, of=LAYER)

    def proven(self, heads: Sequence[int]) -> Tensor:
        """The matrices of some heads, compared with the recorded output. (head, query, key)

        Raises `MhaError` unless the matrices and the recorded values give this output.
        """
        heads, own = list(heads), self._shared
        if self.matrices is None:
            mixing = own["mixing"][heads]
        else:
            with torch.inference_mode(False), torch.no_grad():
                mixing = self.matrices(heads)
        parts = {name: tensor[heads].float() for name, tensor in own.items() if name != "mixing"}
        matrix = mixing.float()
        output, scale = matrix @ parts["v"], matrix.abs() @ parts["v"].abs()
        if "gate" in parts:
            output, scale = output * parts["gate"], scale * parts["gate"].abs()
        output = output + parts.get("bias", 0.0)
        largest = max(scale.max().item(), parts["output"].abs().max().item())
        apart = (output - parts["output"]).abs().max().item()
        if not apart <= TOLERANCE.get(own["v"].dtype, FULL_PRECISION) * largest:
            raise MhaError(
                "{name} ({rule}) is not linear in its values: the matrix of its own code gives another "
                "output, off by {difference:.2g}. So it has no matrix.",
                name=self.name or LAYER,
                rule=self.rule,
                difference=apart,
            )
        return mixing
