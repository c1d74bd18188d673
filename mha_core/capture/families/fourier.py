"""FNet: its layers mix tokens by a Fourier transform, the same for all texts of one length.

A layer computes the real part of a transform over tokens and width, ``Re(F X G)``, with complex matrices. It
equals ``Re F · Re(X G) − Im F · Im(X G)``: two real mixing matrices over tokens, each with its own values.

Source: Lee-Thorp et al. 2022, "FNet: Mixing Tokens with Fourier Transforms", equation 3.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.capture.families.mixing import Kernel, current
from mha_core.errors import Phrase

FOURIER = Kernel(Phrase("Fourier transform (FNet)"), unit="component")


def watch(place: str, part: Any) -> bool:
    """Record the input and the output of a layer's transform."""
    part.self.register_forward_hook(partial(_on_leaving, place))
    return True


def _on_leaving(place: str, _module: nn.Module, args: tuple, result: tuple[Tensor, ...]) -> None:
    """Record both parts. The output of the layer minus the first part is the output of the second."""
    if (recorder := current()) is not None:
        values = torch.view_as_real(torch.fft.fft(args[0], dim=2)).movedim(3, 2)
        cosines = _fourier(values)[:, :, 0]
        output = torch.stack([cosines, result[0] - cosines], dim=2)
        recorder.add(place, FOURIER, _fourier, {"value": values}, output)


def _fourier(value: Tensor) -> Tensor:
    """The transform over tokens of both components. (1, token, component, d_v)"""
    mixed = torch.fft.fft(value, dim=1)
    return torch.stack([mixed[:, :, 0].real, -mixed[:, :, 1].imag], dim=2)
