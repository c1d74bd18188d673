"""FNet, whose layers mix tokens by a Fourier transform over the words, the same for all texts of a length.

A layer takes the real part of a transform over words and width, ``Re(F X G)``, with complex matrices. That is
``Re F · Re(X G) − Im F · Im(X G)``: two real matrices of the words, each with values of its own.

Source: Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", equation 3.
"""

from functools import partial

import torch
from torch import Tensor, nn

from mha_core.capture.families.mixing import Kernel, current
from mha_core.errors import Phrase

FOURIER = Kernel(Phrase("Fourier transform (FNet)"), unit="component")


def watch(place: str, part: nn.Module) -> bool:
    """Note what a layer's transform takes and returns."""
    part.self.register_forward_hook(partial(_on_leaving, place))
    return True


def _on_leaving(place: str, _module: nn.Module, args: tuple, result: tuple[Tensor, ...]) -> None:
    """Note both parts. What the layer computed, less the first one, is held against the second one."""
    if (recorder := current()) is not None:
        values = torch.view_as_real(torch.fft.fft(args[0], dim=2)).movedim(3, 2)
        cosines = _fourier(values)[:, :, 0]
        output = torch.stack([cosines, result[0] - cosines], dim=2)
        recorder.add(place, FOURIER, _fourier, {"value": values}, output)


def _fourier(value: Tensor) -> Tensor:
    """The transform over words of both components. (1, token, component, d_v)"""
    mixed = torch.fft.fft(value, dim=1)
    return torch.stack([mixed[:, :, 0].real, -mixed[:, :, 1].imag], dim=2)
