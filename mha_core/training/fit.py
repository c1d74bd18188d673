"""Training, step by step: a run can be stopped after any step, saved, and resumed.

The objective is ``share · mean CE at pronouns + (1 − share) · mean CE at hidden words``. Attention
itself is never supervised.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from mha_core.attention.initialization import MAX_SEED
from mha_core.errors import MhaError, in_range
from mha_core.training.data import NONE, Batch, Batches
from mha_core.training.language import BARE
from mha_core.training.lexicon import lexicon
from mha_core.training.model import Shape, SmallModel

WARM_UP = 50
MIN_RATE = 0.02  # of the full rate, where the cosine ends
MAX_STEPS = 200_000
# Live training: widths that take some minutes at most. Most of the loss is for pronouns, which the page
# shows, and the bare question comes first: then no seed at d_model 32 or 64 failed to learn it.
LIVE_WIDTHS = range(8, 257)
LIVE = {"steps": 1600, "share": 0.8, "bare": 200}


@dataclass(frozen=True)
class Plan:
    """Everything that decides the outcome of a training: same plan, same weights (on one machine).

    The first `bare` steps read short sentences that all ask for a pronoun. The learning rate falls with
    the width, ``0.004 · (64 / d_model)^0.7``, unless it is given.
    """

    architecture: str = "glass-box"
    h: int = 4
    d_model: int = 64
    language: str = "en"
    seed: int = 0
    steps: int = 1600
    share: float = 0.6
    rate: float | None = None
    bare: int = 0

    def __post_init__(self):
        _ = self.shape
        lexicon(self.language)
        in_range("steps", self.steps, 1, MAX_STEPS)
        in_range("bare", self.bare, 0, MAX_STEPS)
        in_range("seed", self.seed, 0, MAX_SEED)
        if self.rate is None:
            object.__setattr__(self, "rate", 0.004 * (64 / self.d_model) ** 0.7)
        if not _is_number(self.share) or not 0 <= self.share <= 1:
            raise MhaError(
                f"share {self.share!r} is out of range; 0 to 1 work.", fixes=({"share": 0.0}, {"share": 1.0})
            )
        if not _is_number(self.rate) or not 0 < self.rate <= 1:
            raise MhaError(
                f"rate {self.rate!r} is out of range; above 0 and up to 1 work.", fixes=({"rate": None},)
            )

    @property
    def shape(self) -> Shape:
        return Shape(self.architecture, self.h, self.d_model)


class Run:
    """A training under way: the model, the optimizer and how many steps have been taken."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.step = 0
        self.model = SmallModel(plan.shape, len(lexicon(plan.language).vocabulary), seed=plan.seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.batches = Batches(plan.language, plan.seed)
        self.bare = Batches(plan.language, plan.seed, BARE)

    @property
    def finished(self) -> bool:
        return self.step >= self.plan.steps

    def advance(self, steps: int) -> float:
        """Take `steps` steps, or as many as the plan has left, and return their mean loss."""
        total, taken = torch.zeros(()), 0
        while taken < steps and not self.finished:
            batches = self.bare if self.step < self.plan.bare else self.batches
            total += self._step(batches[self.step])
            self.step += 1
            taken += 1
        return float(total) / max(1, taken)

    def _step(self, batch: Batch) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate * rate_at(self.step, self.plan.steps)
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def loss(self, batch: Batch) -> torch.Tensor:
        """``share · mean CE at pronouns + (1 − share) · mean CE at hidden words``, a scalar."""
        hidden, _ = self.model(batch.ids, rows=batch.rows, padding=batch.padding)
        has_target = batch.targets != NONE
        losses = F.cross_entropy(
            self.model.logits(hidden[has_target]), batch.targets[has_target], reduction="none"
        )
        pronoun = batch.is_pronoun[has_target]
        n_pronoun = pronoun.sum()
        share = self.plan.share
        weight = torch.where(
            pronoun, share / n_pronoun.clamp(min=1), (1 - share) / (len(pronoun) - n_pronoun).clamp(min=1)
        )
        return (losses * weight).sum()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rate_at(step: int, steps: int) -> float:
    """The learning rate as a share of the full one: a linear warm-up, then half a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    progress = (step - WARM_UP) / max(1, steps - WARM_UP)
    return MIN_RATE + (1 - MIN_RATE) * (1 + math.cos(math.pi * progress)) / 2
