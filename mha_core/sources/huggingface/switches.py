"""Passes of a transformers model with heads switched off, several texts at once.

Nothing is collected. Each head's output has a factor: 0 replaces it by zero or by a mean, and the gradient of
the factor at 1 is the first-order estimate of that.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mha_core.attention.edits import edited
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.collector import Attend, Collector
from mha_core.sources.huggingface import PreTrainedModel, trial
from mha_core.sources.huggingface.logits import asked, leaves_rows_out, logits_of
from mha_core.sources.huggingface.twin import twin

if TYPE_CHECKING:
    from mha_core.sources.huggingface.model import Model


class Switches(Collector):
    """The factors of heads' outputs, (text, head), by the number of the call; `edits` act, too.

    `means`, (head, 1, d_v), are the outputs at a factor of 0; without a mean the output is 0.
    """

    def __init__(
        self, factors: Mapping[int, Tensor], means: Mapping[int, Tensor], by: Attend, edits: trial.Edits
    ):
        super().__init__({}, self._switched, edits)
        self._factors, self._means, self._by, self._n_calls = factors, means, by, 0

    def _switched(self, q: Tensor, k: Tensor, v: Tensor, rule: ScoreRule) -> Tensor:
        outputs = self._by(q, k, v, rule)
        factors = self._factors.get(self._n_calls)
        if factors is None:
            return outputs
        return interpolated(self._means.get(self._n_calls), outputs, factors[:, :, None, None])

    def edited_rule(self, rule: ScoreRule, q: Tensor, k: Tensor, v: Tensor) -> ScoreRule:
        site, edits = self.edits.get(self._n_calls, (None, ()))
        return rule if site is None else edited(rule, edits, site, q.device)

    def add(self, *_: object) -> None:
        self._n_calls += 1

    def add_arguments(self, *_: object) -> None:
        """Keep nothing, like the next two methods."""

    def add_use(self, *_: object) -> None: ...
    def add_index_scores(self, *_: object) -> None: ...


def interpolated(mean: Tensor | None, outputs: Tensor, factors: Tensor) -> Tensor:
    """Interpolate linearly between heads' outputs (factor 1) and their mean, or 0 without one (factor 0)."""
    factors = factors.to(outputs)
    return outputs * factors if mean is None else torch.lerp(mean.to(outputs), outputs, factors)


def for_one_row(module: PreTrainedModel, at: int, n_tokens: int) -> PreTrainedModel:
    """A twin whose output head gets one row only, if the model would pass it all `n_tokens` rows."""
    other = twin(module)
    head = None if leaves_rows_out(module) else other.get_output_embeddings()

    def row(_: nn.Module, args: tuple) -> tuple | None:
        fits = len(args) == 1 and args[0].dim() == 3 and args[0].shape[1] == n_tokens
        return (args[0][:, [at]],) if fits else None

    if head is not None:
        head.register_forward_pre_hook(row)
    return other


def logits(
    model: "Model",
    module: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    at: int,
    factors: Mapping[int, Tensor],
    means: Mapping[int, Tensor] = MappingProxyType({}),
    edits: trial.Edits = MappingProxyType({}),
) -> Tensor:
    """The logits at one token, in fp32, with the heads' outputs of `Switches`. (text, word)

    `model` is a `Model`, `module` the part of it that runs; `factors` and `means` are by number of the call.
    """
    n_texts = len(next(iter(factors.values())))
    repeated = {name: tensor.expand(n_texts, *tensor.shape[1:]) for name, tensor in inputs.items()}
    repeated |= asked(module, [at])
    n_tokens = inputs["decoder_input_ids" if model.has_target else "input_ids"].shape[1]
    graded = torch.is_grad_enabled()  # leaving inference mode would turn gradients on
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(graded),
        Switches(factors, means, model.route.by, edits),
    ):
        result = module(**repeated, return_dict=True)
    return logits_of(result, [at], n_tokens=n_tokens, name=model.name)[:, 0]


def words_of(tokenizer: Any, word: str) -> Sequence[int]:
    """The ids of the single tokens that can be a word, with and without a space in front."""
    numbers = [tokenizer.convert_tokens_to_ids(word)] if word in tokenizer.get_vocab() else []
    for written in (f" {word}", word):
        ids = tokens_of(tokenizer, written)
        numbers += ids if len(ids) == 1 else []
    return tuple(dict.fromkeys(numbers))


def tokens_of(tokenizer: Any, text: str) -> Sequence[int]:
    """The ids of the tokens of a text; none if a part of it is unknown to the tokenizer."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return () if tokenizer.unk_token_id in ids else ids
