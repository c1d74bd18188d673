"""The uses of a recorded model's matrices and norms: they show what made q, k and v, and W^O."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.module import Attended
from mha_core.capture.own_code.outputs import Output
from mha_core.capture.own_code.tiling import Tiling
from mha_core.capture.projections import Proof, Provenance, Use, matrix, provenance
from mha_core.capture.recorded_call import RecordedCall
from mha_core.traces.projections import Part
from mha_core.traces.tensors import on_cpu, version


class TextRows(NamedTuple):
    """How the rows of one text are found in tensors: it is number `item` of a batch of `n_texts`.

    With a tiling they are the rows of all its parts, one part after the other.
    """

    n_texts: int
    item: int
    tiled: Tiling | None = None

    def of(self, tensor: Tensor) -> Tensor | None:
        """(1, token, width) of the text, or (1, …, width) where its heads have axes of their own."""
        if self.tiled is not None:
            return _rows_of_parts(tensor, self.tiled)
        shape = tensor.shape
        if self.n_texts == 1:
            return tensor if tensor.dim() == 4 else tensor.reshape(1, -1, shape[-1])
        if tensor.dim() == 2 and shape[0] % self.n_texts == 0:
            return tensor.unflatten(0, (self.n_texts, -1))[self.item][None]
        if tensor.dim() > 2 and shape[0] == self.n_texts:
            return tensor[self.item][None]
        if tensor.dim() == 3 and shape[1] == self.n_texts:
            return tensor[None, :, self.item]
        return None

    def of_use(self, use: Use) -> Use | None:
        """A use of a module for this text alone, if its tensors are unchanged and have rows for it."""
        if use.versions != (version(use.x), version(use.y)):
            return None
        x, y = self.of(use.x), self.of(use.y)
        if x is None or y is None:
            return None
        return Use.of(use.module, x.detach(), y.detach(), Proof(use.proof.name))


class ModuleUses:
    """Keeps the uses of a recorded model's matrices and norms, which show what made q, k and v, and W^O."""

    def __init__(self, names: Mapping[nn.Module, str], undisturbed: Callable[[], AbstractContextManager]):
        self._names, self._undisturbed = names, undisturbed
        self._thread = 0
        self._uses: list[Use] = []
        self._awaited: tuple[RecordedCall, Tensor, TextRows] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """In this block the modules' uses in this thread are kept."""
        self._thread = threading.get_ident()
        with ExitStack() as hooks:
            for module in self._names:
                if isinstance(module, torch.jit.ScriptModule):  # nothing inside it is seen
                    continue
                is_leaf = next(module.children(), None) is None
                if is_leaf and module._parameters.get("weight") is not None:
                    hooks.enter_context(module.register_forward_hook(self._on_use))
            try:
                yield
            finally:
                self._uses, self._awaited = [], None

    def _on_use(self, module: nn.Module, args: tuple, output: object) -> None:
        if threading.get_ident() != self._thread or not args:
            return
        x = args[0]
        with torch._C.DisableTorchFunction():  # modes would see each question to a tensor
            if not isinstance(x, Tensor) or not isinstance(output, Tensor):
                return
            if not x.is_floating_point() or x.is_meta:
                return
            weight = module._parameters.get("weight")
            # Each use is tried for q, k and v: the numbers show which is which.
            name = "c_attn" if weight is not None and weight.dim() == 2 else "qk_norm"
            use = Use.of(module, x, output, Proof(name))
            self._uses.append(use)
        if self._awaited is not None:
            with self._undisturbed(), torch.inference_mode(False), torch.no_grad():
                self._find_output(use, *self._awaited)

    def provenance(self, module: nn.Module | None, attended: Attended, rows: TextRows) -> Provenance:
        """The origin of q, k and v of one text, as far as the modules inside `module` show it."""
        uses, self._uses = self._uses, []
        if module is None or module not in self._names:
            return Provenance()
        inside = set(module.modules())
        own = (rows.of_use(use) for use in uses if use.module in inside)
        named = [use for use in own if use is not None]
        q, k, v = attended.q, attended.k, attended.v
        n_query = q.shape[2]
        if n_query < k.shape[2]:  # with a cache only the last keys and values are computed now
            latest = provenance(q, k[:, :, -n_query:], v[:, :, -n_query:], named)
            if latest.tensors:
                return latest
        return provenance(q, k, v, named, outside=n_query != k.shape[2])

    def await_output(self, call: RecordedCall, concat: Tensor, rows: TextRows) -> None:
        """Wait for the next module whose input is the heads' outputs (query, h · d_v): it has W^O."""
        if self._names:
            self._awaited = call, concat, rows

    def found(self, call: RecordedCall, concat: Tensor, rows: TextRows, output: Output | None) -> None:
        """Keep W^O, or where no matrix gives the result, what flowed into it and out of it."""
        self._awaited = None
        call.tensors = {name: one for name, one in call.tensors.items() if name not in ("concat", "result")}
        if output is None:
            return
        x, y = rows.of(output.concat), rows.of(output.result)
        x = None if x is None or x.shape[1:] != concat.shape else x[0]
        if x is not None and torch.equal(x.to(concat), concat) and output.matrix is not None:
            call.matrices = {**call.matrices, **copies({"w_o": output.matrix, "b_o": output.bias})}
        elif y is not None and y.dim() == 3:
            call.tensors = {**call.tensors, **copies({"concat": x, "result": y[0]})}

    def _find_output(self, use: Use, call: RecordedCall, concat: Tensor, rows: TextRows) -> None:
        one = rows.of_use(use)
        if one is None or one.x.shape[1:] != concat.shape or not torch.equal(one.x[0], concat):
            return
        if (product := matrix(one)) is not None:
            call.matrices = {**call.matrices, **copies({"w_o": product[0], "b_o": product[1]})}
        self._awaited = None


def _rows_of_parts(tensor: Tensor, tiled: Tiling) -> Tensor | None:
    """(1, token, width) of all parts of a text, where a tensor has their rows one part after the other."""
    if tensor.shape[:-1].numel() != tiled.tokens.numel() or len(tensor) not in (1, len(tiled.tokens)):
        return None
    place = tensor.data_ptr(), tensor.shape, tensor.stride()
    if place not in tiled.wholes:  # one for all matrices that take it
        tiled.wholes[place] = tensor, tiled.whole(tensor.reshape(-1, tensor.shape[-1]))[None]
    return tiled.wholes[place][1]


def copies(tensors: Mapping[str, Tensor | Part | None]) -> dict[str, Tensor]:
    """Copies on the CPU with the same strides: a trace does not change when the model is trained further."""
    return {
        name: on_cpu(tensor.tensor() if isinstance(tensor, Part) else tensor).detach().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }
