"""The small models: two layers of our own `MultiHeadAttention`, and answers in words.

x₀ is the word's embedding plus a learned position vector. The answer to a question about a word is
``softmax((LN(z) Eᵀ + b) / T)`` over words, E being the same embeddings, z the output of the question's heads
and T the temperature of the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mha_core.attention.functional import attend, attention_weights
from mha_core.attention.initialization import normal
from mha_core.attention.latent import LatentAttention, LatentSpec
from mha_core.attention.masks import causal
from mha_core.attention.module import Attended, AttentionSpec, MultiHeadAttention
from mha_core.attention.positions import sinusoidal
from mha_core.attention.score_rule import ScoreRule
from mha_core.errors import MhaError, one_of
from mha_core.traces.source import DECODER
from mha_core.training.language import MAX_WORDS
from mha_core.training.questions import NEXT_WORD, heads_of

D_FF = 128  # inner width of the MLP, equal for every d_model to keep wide models small
# The share of the gradient that passes through the values of a lookup to the layer before it, at width 64; in
# wider models it is smaller. With all of it the first layer of a wide model fetches the answers itself, and
# the heads of the lookup find them wherever they look; with none the first layer learns slowly.
VALUE_GRADIENT = 0.2

# The layers of each architecture. In some of the glass-boxes and decoders heads share keys and values: two
# heads each (Ainslie et al. 2023), all heads (Shazeer 2019), or computed from a latent vector (DeepSeek-AI
# 2024), which is as long as the one key and value that all heads would share.
ARCHITECTURES = {
    "glass-box": ("block", "lookup"),
    "standard": ("block", "block"),
    "one-layer": ("lookup",),
    "grouped-query": ("block", "lookup"),
    "multi-query": ("block", "lookup"),
    "latent": ("block", "lookup"),
    "decoder": ("block", "block"),
    "decoder-grouped-query": ("block", "block"),
    "decoder-multi-query": ("block", "block"),
    "decoder-latent": ("block", "block"),
}


class Flow(NamedTuple):
    """The tensors of one attention layer: its result, and the input of Q, K and V."""

    attended: Attended
    x: Tensor  # (batch, L, d_model)

    def weights(self) -> Tensor:
        """The attention weights. (batch, head, query, key)"""
        return attention_weights(self.attended.q, self.attended.k, self.attended.rule)


class Pass(NamedTuple):
    """One pass of sentences through a model: the attention of every layer, and the input of the last one."""

    flows: list[Flow]
    x: Tensor  # (batch, L, d_model): the residual stream before the last layer
    heads: Tensor  # (batch, L, head, d_v): the outputs of the heads of the last layer


class Layer(nn.Module):
    """A layer of a small model.

    A "block" is an ordinary pre-norm transformer block: ``x + MHA(LN(x))``, then ``x + W₂ GELU(W₁ LN(x))``.
    A "lookup" is attention only, ``MHA(LN(x))``: without a residual connection every answer comes from the
    heads.
    """

    def __init__(self, kind: str, spec: AttentionSpec | LatentSpec):
        super().__init__()
        self.kind = kind
        self.norm = nn.LayerNorm(spec.d_model)
        self.attention = LatentAttention(spec) if isinstance(spec, LatentSpec) else MultiHeadAttention(spec)
        if kind == "block":
            self.mlp_norm = nn.LayerNorm(spec.d_model)
            self.mlp_in = nn.Linear(spec.d_model, D_FF)
            self.mlp_out = nn.Linear(D_FF, spec.d_model)

    def result(self, x: Tensor, output: Tensor) -> Tensor:
        """The residual stream after the layer, from the stream before it and the output of its heads."""
        if self.kind == "lookup":
            return output
        x = x + output
        return x + self.mlp_out(nn.functional.gelu(self.mlp_in(self.mlp_norm(x))))


@dataclass(frozen=True)
class Shape:
    """Everything that decides which parameters a small model has."""

    architecture: str = "glass-box"
    h: int = 4
    d_model: int = 64

    def __post_init__(self) -> None:
        one_of("architecture", self.architecture, ARCHITECTURES)
        _ = self.spec

    @property
    def layers(self) -> tuple[str, ...]:
        """The kinds of its layers, from the first."""
        return ARCHITECTURES[self.architecture]

    @property
    def is_decoder(self) -> bool:
        """Whether a word sees only earlier ones, and the model answers with the next word."""
        return self.architecture.startswith(DECODER)

    @property
    def questions(self) -> dict[str, tuple[int, ...]]:
        """The heads of the last layer that each question reads, counted from 0."""
        return {NEXT_WORD: tuple(range(self.h))} if self.is_decoder else heads_of(self.h)

    @property
    def spec(self) -> AttentionSpec | LatentSpec:
        """The sizes of each layer's attention. Raises `MhaError` if they do not fit together."""
        spec = AttentionSpec(self.d_model, self.h)
        sharing = self.architecture.removeprefix(f"{DECODER}-")
        if sharing == "grouped-query":
            return replace(spec, n_kv_heads=self.h // 2 if self.h % 2 == 0 else self.h)
        if sharing == "multi-query":
            return replace(spec, n_kv_heads=1)
        if sharing == "latent":
            return LatentSpec(self.d_model, self.h, kv_rank=min(2 * spec.d_k, self.d_model), rotary_width=0)
        return spec


class SmallModel(nn.Module):
    """A small model of one of `ARCHITECTURES`; its weights are drawn from the seed, or empty without one.

    It answers questions about every word. Each question reads the output of its own heads of the last layer,
    ``z = Σ head_i W_i^O + b`` over these heads; the answer is ``softmax((LN(z) Eᵀ + b) / T)`` over words. The
    module `questions` lists the heads of each question; a decoder is asked for the next word alone, and reads
    all heads. T is 1 but for the shipped models, whose `temperatures` make their answers as sure as they are
    right on sentences written by people.
    """

    def __init__(self, shape: Shape, n_words: int, *, seed: int | None = 0):
        super().__init__()
        self.shape = shape
        self.questions = shape.questions
        self.temperatures: dict[str, float] = {}
        self.embedding = nn.Parameter(torch.empty(n_words, shape.d_model))
        self.position = nn.Parameter(torch.empty(MAX_WORDS, shape.d_model))
        self.layers: Any = nn.ModuleList(Layer(kind, shape.spec) for kind in shape.layers)
        self.norm = nn.LayerNorm(shape.d_model)
        self.bias = nn.Parameter(torch.zeros(n_words))
        if seed is not None:
            with torch.no_grad():
                self._draw(seed)

    def forward(
        self,
        ids: Tensor,
        *,
        padding: Tensor | None = None,
        rules: Sequence[ScoreRule] | None = None,
        shift: int = 0,
    ) -> Pass:
        """ids (batch, L) → the attention of every layer, and the input of the questions.

        `padding` (batch, L) is True where there is a word, None if all are words. `rules` are the score rules
        of the layers, by default those of `rules`. `shift` is the number of the first position.
        """
        x = nn.functional.embedding(ids, self.embedding) + self.position[shift : shift + ids.shape[1]]
        flows, before = [], x
        for layer, rule in zip(self.layers, rules or self.rules(ids.shape[1]), strict=True):
            before, normed = x, layer.norm(x)
            values = normed
            if self.training and layer.kind == "lookup" and layer is not self.layers[0]:
                share = VALUE_GRADIENT * (64 / self.shape.d_model) ** 0.5
                values = torch.lerp(normed.detach(), normed, share)  # same values, smaller gradient
            attended = layer.attention(normed, values=values, key_padding=padding, rule=rule)
            flows.append(Flow(attended, normed))
            if layer is not self.layers[-1]:
                x = layer.result(x, attended.output)
        _, q, k, v, rule = flows[-1].attended
        return Pass(flows, before, attend(q, k, v, rule).transpose(1, 2))

    def rules(self, n_words: int) -> list[ScoreRule]:
        """The score rule of each layer: plain attention, in a decoder with a causal mask."""
        mask = causal(n_words, n_words, 0).to(self.bias.device) if self.shape.is_decoder else None
        return [ScoreRule(mask=mask)] * len(self.layers)

    def read(self, passed: Pass, question: str) -> Tensor:
        """The input of a question at every word: the output of the last layer with only the question's heads.

        (batch, L, d_model)
        """
        return self._result(passed.x, passed.heads, self.gates((question,))[0])

    def read_rows(self, passed: Pass, sentence: Tensor, position: Tensor, gates: Tensor) -> Tensor:
        """The same at single words, with `gates` 1 for each head that is read. (row, d_model)"""
        return self._result(passed.x[sentence, position], passed.heads[sentence, position], gates)

    def gates(self, questions: Sequence[str]) -> Tensor:
        """1 for each head that a question reads, all 0 for a question without heads. (question, head)"""
        gates = torch.zeros(len(questions), self.shape.h)
        for row, question in zip(gates, questions, strict=True):
            row[list(self.questions.get(question, ()))] = 1
        return gates.to(self.bias.device)

    def logits(self, hidden: Tensor, words: Tensor | slice = slice(None)) -> Tensor:
        """``LN(z) Eᵀ + b``: a score for every word, or for some. (…, d_model) → (…, word)"""
        return nn.functional.linear(self.norm(hidden), self.embedding[words], self.bias[words])

    def answer_logits(
        self, passed: Pass, question: str, at: Any, words: Tensor | slice = slice(None)
    ) -> Tensor:
        """The scores of words as answers to a question at positions `at`, divided by its temperature."""
        hidden = self.read(passed, question)[:, at]
        return self.logits(hidden, words) / self.temperatures.get(question, 1.0)

    def _result(self, x: Tensor, heads: Tensor, gates: Tensor) -> Tensor:
        last = self.layers[-1]
        concat = (heads * gates[..., None]).flatten(-2)
        return last.result(x, nn.functional.linear(concat, last.attention.o.weight, last.attention.o.bias))

    def set_position(self, code: str) -> None:
        """Replace the learned position encoding by another one, a name in `positions.POSITIONS`.

        With ALiBi, which is added to scores, nothing is added to X. Raises `MhaError` for a rotation of
        queries and keys, which these layers do not have.
        """
        if code == "rotary":
            raise MhaError(
                "The small models have no rotary position encoding: their queries and keys are not "
                "rotated. Choose another encoding, or random weights (source='random').",
                fixes=({"source": "random"},),
            )
        with torch.no_grad():
            if code == "sinusoidal":
                self.position.copy_(_sinusoidal(self.shape.d_model))
            elif code != "learned":
                self.position.zero_()

    def _draw(self, seed: int) -> None:
        for name, parameter in self.state_dict().items():  # views, which name Q, K and V separately
            kind = name.rsplit(".", 1)[-1]
            if "norm" in name or name == "position":
                continue
            if kind == "bias":
                parameter.zero_()
                continue
            fan_in = parameter.shape[-1]
            std = fan_in**-0.5
            if name.endswith(("attention.o.weight", "mlp_out.weight")):
                std *= (2 * len(self.layers)) ** -0.5  # a deep sum of blocks should not grow
            parameter.copy_(normal(tuple(parameter.shape), seed=seed, name=name, std=std))
        self.position.copy_(_sinusoidal(self.shape.d_model))
        for layer in {self.layers[0], self.layers[-1]} if self.layers[-1].kind == "lookup" else ():
            _pass_through(layer.attention)


def _sinusoidal(d_model: int) -> Tensor:
    """The sinusoidal encoding with vectors of length 1, as words have; the initial value of positions."""
    return sinusoidal(MAX_WORDS, d_model) * (2 / d_model) ** 0.5


def _pass_through(attention: MultiHeadAttention | LatentAttention) -> None:
    """Initialize W^V as orthogonal and ``W^O = (W^V)ᵀ``: a word that all heads look at passes unchanged.

    Then only where to look remains to be learned about an answer. Here h·d_v = d_model. If heads share
    values, or compute them from a latent vector, as much of the word passes as these can hold.
    """
    w_o = attention.o.weight.detach().mT
    if isinstance(attention, LatentAttention):
        spec = attention.spec
        down, _ = torch.linalg.qr(attention.kv_down.weight.mT)
        attention.kv_down.weight.copy_(down.mT)
        up = attention.kv_up.weight.view(spec.n_heads, spec.d_k + spec.d_v, spec.kv_rank)[:, spec.d_k :]
        turned, _ = torch.linalg.qr(up.mT)  # (head, kv_rank, d_v)
        up.copy_(turned.mT)
        share = spec.kv_rank / (spec.n_heads * spec.d_v)  # share of a head in the sum
        # The norm makes each latent vector √kv_rank long. Words are 1 long at the start, and the part of
        # a word that a latent vector holds is √(kv_rank / d) long.
        w_o.copy_((down @ turned).mT.flatten(0, 1) * share / spec.d_model**0.5)
        return
    sizes, w_v = attention.spec, attention.projections().w_v
    assert w_v is not None  # our own layer has all its matrices
    orthogonal, _ = torch.linalg.qr(w_v)
    if sizes.n_kv_heads == sizes.n_heads:
        orthogonal, _ = torch.linalg.qr(w_v.mT)
        orthogonal = orthogonal.mT
    w_v.copy_(orthogonal)
    shared = sizes.n_heads // sizes.n_kv_heads
    per_head = orthogonal.mT.unflatten(0, (sizes.n_kv_heads, sizes.d_v)).repeat_interleave(shared, 0)
    w_o.copy_(per_head.flatten(0, 1) / shared)
