"""Several texts through a model in one pass, and the calls of each as if it had gone alone.

The texts are filled up on the right to one width. What makes q, k and v of x works on each token alone, so
it is looked up once, for the batch as one long row of tokens. Then each text gets its part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from mha_core.attention.functional import attend
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture.call import Call, Index
from mha_core.capture.collector import Attend, Collector
from mha_core.capture.masks import rule_fields
from mha_core.capture.projections import Use
from mha_core.errors import MhaError


class MixedTexts(MhaError):
    """The texts of a pass cannot be told apart by the first axis of its queries, keys and values."""


class Batch(Collector):
    """The calls of a pass of several texts: `lengths` are theirs, `width` is what they were filled up to."""

    def __init__(self, names: Mapping[int, str], lengths: Sequence[int], width: int, by: Attend = attend):
        super().__init__(names, by)
        self.lengths, self.width = lengths, width

    def add(
        self,
        module: nn.Module | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rule: ScoreRule,
        joined: Tensor,
        index: Index | None = None,
    ) -> None:
        if index is not None:  # of keys with equal scores it takes other ones if there are more of them
            raise MixedTexts("A learned index chooses the keys.")
        if {(part.shape[0], part.shape[2]) for part in (q, k, v)} != {(len(self.lengths), self.width)}:
            raise MixedTexts("q {q}, k {k}", q=tuple(q.shape), k=tuple(k.shape))
        q, k, v = (self._row(part.transpose(1, 2)).transpose(1, 2) for part in (q, k, v))
        super().add(module, q, k, v, rule, self._row(joined))

    def add_arguments(self, name: str, args: tuple, kwargs: dict) -> None:
        kwargs = {key: self._row(value) for key, value in kwargs.items()}
        super().add_arguments(name, tuple(self._row(value) for value in args[:1]), kwargs)

    def add_use(self, use: Use) -> None:
        super().add_use(use._replace(x=self._row(use.x), y=self._row(use.y)))

    def _row(self, value: Any) -> Any:
        """All tokens of all texts in one row, (text or 1, token, …) → (1, text · token, …)."""
        if isinstance(value, tuple):
            return tuple(self._row(part) for part in value)
        count = len(self.lengths)
        if not isinstance(value, Tensor) or value.dim() < 3 or value.shape[0] not in (1, count):
            return value
        if value.dim() == 4 and value.shape[1] != self.width == value.shape[2]:  # heads before tokens
            return self._row(value.transpose(1, 2)).transpose(1, 2)
        if value.shape[1] != self.width:
            return value
        value = value.expand(count, *value.shape[1:])
        return value.reshape(1, count * self.width, *value.shape[2:])

    def texts(self) -> list[list[Call]]:
        """The calls of each text, with copies of its own. The calls of the batch are let go."""
        by_text: list[list[Call]] = [[] for _ in self.lengths]
        rules: dict[tuple, tuple[ScoreRule, list[dict[str, Tensor]]]] = {}
        calls = self.calls[::-1]
        self.calls.clear()
        while calls:
            call = calls.pop()
            for i, (rule, of_text) in enumerate(zip(self._rules(call.rule, rules), by_text, strict=True)):
                of_text.append(self._part(call, i, rule))
        return by_text

    def _part(self, call: Call, i: int, rule: ScoreRule) -> Call:
        at = slice(i * self.width, i * self.width + self.lengths[i])
        code = call.code
        return replace(
            call,
            q=call.q[:, :, at].contiguous(),
            k=call.k[:, :, at].contiguous(),
            v=call.v[:, :, at].contiguous(),
            rule=rule,
            tensors={name: tensor[..., at, :].contiguous() for name, tensor in call.tensors.items()},
            code=None if code is None else code._replace(cos=code.cos[at], sin=code.sin[at]),
        )

    def _rules(self, rule: ScoreRule, cropped: dict) -> list[ScoreRule]:
        """The rule of each text, without what hid the filling. Layers share what they shared."""
        key = tuple(id(tensor) for name, tensor in rule.tensors().items() if name != "sinks")
        if not key:
            return [rule] * len(self.lengths)
        if key not in cropped:  # the rule is held, so that no other tensor can take the place of its own
            cropped[key] = rule, [self._cropped(rule, i) for i in range(len(self.lengths))]
        numbers: dict[str, Any] = {"scale": rule.scale, "soft_cap": rule.soft_cap, "sinks": rule.sinks}
        return [ScoreRule(**numbers, **fields) for fields in cropped[key][1]]

    def _cropped(self, rule: ScoreRule, i: int) -> dict[str, Tensor]:
        n = self.lengths[i]

        def of_text(table: Tensor | None) -> Tensor | None:
            return None if table is None else table[min(i, table.shape[0] - 1)][None, :, :n, :n]

        fields = rule_fields(of_text(rule.mask), of_text(rule.bias), size=(n, n))
        if rule.distance_bias is not None:  # its middle, since distances are smaller
            fields["distance_bias"] = rule.distance_bias[:, self.width - n : self.width + n - 1]
        return {name: table.contiguous() for name, table in fields.items()}
