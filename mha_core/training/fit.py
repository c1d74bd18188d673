"""Training, step by step: a run can be stopped after any step, saved, and resumed.

A model answers questions about every word and learns from the right answers. It is never taught where its
heads should look.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from mha_core.attention.initialization import MAX_SEED
from mha_core.errors import MhaError, in_range
from mha_core.training.data import ASKED, GROUPS, Batches
from mha_core.training.language import BARE
from mha_core.training.lexicon import lexicon
from mha_core.training.model import Shape, SmallModel

WARM_UP = 50
MIN_RATE = 0.02  # of the full rate, at the end of the cosine
MAX_STEPS = 200_000
# Live training: widths that take a few minutes at most. Short sentences with a pronoun come first.
LIVE_WIDTHS = range(8, 257)
LIVE = {"steps": 3000, "bare": 200}
# The weights of the losses of the groups of links: the pronoun is the hardest question.
SHARES = torch.tensor([3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5])
HIDDEN_SHARE = 0.35


@dataclass(frozen=True)
class Plan(Shape):
    """Everything that decides the outcome of a training: same plan, same weights (on one machine).

    The first `bare` steps have short sentences that all have a pronoun to resolve. By default the learning
    rate decreases with the width, ``0.004 · (64 / d_model)^0.7``.
    """

    language: str = "en"
    seed: int = 0
    steps: int = 1600
    rate: float = None  # type: ignore[assignment]  # never None afterwards
    bare: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        lexicon(self.language)
        in_range("steps", self.steps, 1, MAX_STEPS)
        in_range("bare", self.bare, 0, MAX_STEPS)
        in_range("seed", self.seed, 0, MAX_SEED)
        if self.rate is None:
            object.__setattr__(self, "rate", 0.004 * (64 / self.d_model) ** 0.7)
        is_number = isinstance(self.rate, int | float) and not isinstance(self.rate, bool)
        if not is_number or not 0 < self.rate <= 1:
            raise MhaError(
                "rate {rate!r} is out of range; above 0 and up to 1 work.",
                rate=self.rate,
                fixes=({"rate": None},),
            )


class Training:
    """A training in progress: the model, the optimizer and the number of steps taken."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.step = 0
        self.model = SmallModel(plan, len(lexicon(plan.language).vocabulary), seed=plan.seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.gates = self.model.gates(ASKED)
        words = lexicon(plan.language)
        self.n_known = len(words.vocabulary) - len(words.spares)
        self.batches: Any = Batches(plan.language, plan.seed)
        self.bare = Batches(plan.language, plan.seed, BARE)

    @property
    def finished(self) -> bool:
        return self.step >= self.plan.steps

    def advance(self, steps: int) -> float:
        """Take `steps` steps, or as many as the plan has left, and return their mean loss."""
        total, taken = torch.zeros(()), 0
        while taken < steps and not self.finished:
            for group in self.optimizer.param_groups:
                group["lr"] = self.plan.rate * rate_at(self.step, self.plan.steps)
            self.optimizer.zero_grad()
            batches = self.bare if self.step < self.plan.bare else self.batches
            loss = self.loss(batches[self.step])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.detach()
            self.step += 1
            taken += 1
        return float(total) / max(1, taken)

    def loss(self, batch: Any) -> torch.Tensor:
        """``Σ_g share_g · mean CE of group g + 0.35 · mean CE at hidden words``, a scalar.

        The candidates for an answer are the words of the batch, for a hidden word all known words.
        """
        asked = self.gates[batch.question]
        is_asked = asked.any(1)  # a model with few heads does not have every question
        rows = is_asked & (batch.group < len(GROUPS))
        guesses = is_asked & ~rows
        passed = self.model(batch.ids, padding=batch.padding, shift=batch.shift)
        hidden = self.model.read_rows(passed, batch.sentence[rows], batch.position[rows], asked[rows])
        logits = self.model.logits(hidden, batch.candidates)
        losses = F.cross_entropy(logits, batch.answer[rows], reduction="none")
        groups = batch.group[rows]
        counts = torch.bincount(groups, minlength=len(GROUPS))
        share = SHARES * (counts > 0)
        weight = (share / share.sum() / counts.clamp(min=1))[groups]
        total = (losses * weight).sum()
        if guesses.any():
            hidden = self.model.read_rows(
                passed, batch.sentence[guesses], batch.position[guesses], asked[guesses]
            )
            logits = self.model.logits(hidden, slice(self.n_known))
            total = total + HIDDEN_SHARE * F.cross_entropy(logits, batch.answer[guesses])
        return total


def rate_at(step: int, steps: int) -> float:
    """The learning rate as a share of the full one: a linear warm-up, then half a cosine."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    progress = (step - WARM_UP) / max(1, steps - WARM_UP)
    return MIN_RATE + (1 - MIN_RATE) * (1 + math.cos(math.pi * progress)) / 2
