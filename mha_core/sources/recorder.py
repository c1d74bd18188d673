"""Traces of unchanged torch code: its attention is recorded while it runs.

A `TorchFunctionMode` intercepts each call of `F.scaled_dot_product_attention`,
`F.multi_head_attention_forward` and `flex_attention`, and copies the queries, keys and values of one item.
A second mode follows code that computes a softmax itself. It computes such attention again, row by row, and
records it if the result is the same. The modes belong to one thread: recorders in several threads are
independent, and the outer one of two nested recorders records the calls of both. While a mode is active,
torch does not use its fused encoder path, and compiled code runs uncompiled. `torch.jit` modules cannot be
recorded.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.attention.module import Attended
from mha_core.attention.score_rule import ScoreRule
from mha_core.capture import sdpa
from mha_core.capture.axes import item_index, of_item, text_axis
from mha_core.capture.collector import CROSS
from mha_core.capture.masks import SharedTensors
from mha_core.capture.module_copy import Given
from mha_core.capture.own_code import following
from mha_core.capture.own_code.caller import Caller, Root, caller, searches_beams
from mha_core.capture.own_code.following import EagerMode
from mha_core.capture.own_code.modules import ModuleUses, TextRows, copies
from mha_core.capture.own_code.order import Proof, Seen, order, outermost, proof
from mha_core.capture.own_code.scores import FollowedAttention
from mha_core.capture.own_code.tiling import Tiling, tiling
from mha_core.capture.recorded_call import BEAMS, ForwardPass, Place, Queries, RecordedCall, side_by_side
from mha_core.capture.special_layers import without_attention
from mha_core.capture.token_mixing import BEHIND, BESIDE, MIXES, UNCHECKED, Mixers
from mha_core.device import memory_errors
from mha_core.errors import Listed, MhaError, Phrase, at_least_1, count_of, listed, one_of, shown
from mha_core.sources.arrays import sides_of
from mha_core.sources.recorded_layers import (
    SortedPass,
    counted,
    few,
    kinds_by_sizes,
    kinds_of,
    of_modules,
    placed,
    sorted_pass,
)
from mha_core.traces.facts import Facts
from mha_core.traces.indices import index, whole
from mha_core.traces.layer import LayerTrace, with_texts
from mha_core.traces.source import RecordedSource, SourceValue, array_source
from mha_core.traces.tensors import compact, contiguous_copy, version
from mha_core.traces.tokens import Sides, Tokens
from mha_core.traces.trace import AttentionTrace

NOTHING = Phrase(
    "No attention was recorded. Looked for, in this thread and inside the block: calls of "
    "torch.nn.functional.scaled_dot_product_attention and multi_head_attention_forward, of flex_attention, "
    "and products of queries and keys that go through a softmax to the values. The flash_attn package and "
    "modules made by torch.jit cannot be seen. mha.from_tensors(q=, k=, v=, tokens=) takes what such code "
    "computes."
)
OUTSIDE = Phrase("it runs outside the model that is recorded.")
SLICES = Phrase(
    "it is one of several calls in a row, which may be a head of every text each, or some heads of one text, "
    "and it cannot be told which; record one item at a time."
)
DROPOUT = Phrase(
    "With dropout the weights and outputs are those before it, and result() is not what the model went on "
    "with."
)
MISFITS = ("name", "raise")
ORDER, MIXING = CHECKS = ("order", "mixing")
NOT_MIXING = Phrase(
    "Whether anything but the attention that is named mixes tokens was not checked; "
    'mha.record(model, tokens=…, check="mixing") does.'
)
NOT_CHECKED = Phrase(
    "Whether rows and columns are the tokens in their order, and whether anything but the attention that is "
    'named mixes tokens, was not checked; mha.record(model, tokens=…, check="mixing") does.'
)
LOST = Phrase("its weights are not the softmax of scores that could be followed")
MAX_LOST = 1 << 20  # weights that are kept of attention that was not followed
ALL = "all"  # parts of an item, as one layer


def record(
    model: nn.Module | None = None,
    *,
    tokens: "str | Sequence[str] | Tokens",
    keys: "str | Sequence[str] | Tokens | None" = None,
    item: int = 0,
    batch: int | None = None,
    kinds: Sequence[str] | None = None,
    misfit: str = "name",
    part: "int | str" = 0,
    check: str | None = ORDER,
    source: SourceValue = RecordedSource.name,
) -> "Recorder":
    """Record attention while torch code runs: ``with mha.record(tokens=…) as rec: my_model(x)``; `rec.trace`.

    `tokens` are the tokens at the positions of the input: a list of strings, or a text. `keys` are the tokens
    of a second text that they look at, as in an encoder–decoder. The lengths of a call show its kind; if they
    do not, give `kinds`, one for each call in order: encoder (keys among themselves), decoder or cross.
    With ``mha.record(model, tokens=…)`` layers have the names of the model's modules, and x and W^O; they
    also have W^Q, W^K and W^V where the products with these are q, k and v. Calls outside of that model, such
    as a teacher beside a student, are left out and named.

    `item` is the index in a batch of `batch` texts. The modules that run show how many texts there are; give
    `batch` only for code without modules whose axes of texts and heads cannot be told apart.
    Some models cut one item into windows, frames or channels and fold these into the batch. The trace then
    shows `part` number 0 or the one you choose, and names the others as left out. With ``part="all"`` and the
    `tokens` of the whole item it shows all parts as one layer, in which tokens of other parts are hidden. To
    prove which token is where, the modules around the layer run some times more, in copies with some tokens
    changed. The trace's notes say which module's order of tokens this is. A layer is named with the reason if
    not each token is in exactly one part. If one batch has parts of several items, record one item at a time.
    The output of the model is bit-identical to its output with torch's fused path off. With dropout the
    recorded weights are those before dropout. A factor for each head on the scores is recorded as a factor on
    its queries. Granite with windows writes a sink as a factor ``sigmoid(lse − sink)`` on each row of the
    output: the recorded weights do not have it and their rows sum to 1. ``mha.trace`` of that model has the
    sink, and its rows sum to less.
    One-head modules whose outputs are concatenated are the heads of one layer. A call whose keys extend those
    of an earlier one, as with a cache, continues it: the layer has the queries of all these calls, each with
    the keys that existed at that time.

    Calls that do not fit the tokens, attention that cannot be followed, and layers of a class that is known
    to mix tokens by other means are left out and named in ``trace.source.skipped`` with their place; with
    ``misfit="raise"`` they are errors. Other code may mix tokens, too: a convolution, a Fourier transform, an
    operator of its own. ``check="mixing"`` of a `model` runs a copy of each module again with one token
    changed. It names the modules in which other tokens change, beside their recorded attention, and those
    that it could not check. It also runs the model again with some tokens of the item changed, to prove
    that rows and columns are these tokens in their order. Attention over channels, mixtures, learned slots
    or another item, and attention that has the tokens in another order, is then left out and named.
    Unasked, ``check="order"`` runs a copy of the model twice, with half of the tokens changed the second
    time, if it was given ids or vectors of the tokens and no cache. If rows of other tokens change in place
    of theirs, or all rows do, it goes on as ``"mixing"``. ``check=None`` runs nothing again. What was not
    checked, or not proven, ``trace.source.notes`` says.
    A row with every key hidden has weight 0 everywhere, where torch may have NaN; hidden by a finite number
    it has equal weights, as in the model. One softmax is one layer. If its weights are multiplied with more
    than its values, that is named.
    ``recorder.unlabelled`` has the matrices of all attention that was read and that no trace shows.
    Raises `MhaError` for an unknown `misfit` and for arguments of another type. Reading `trace` raises it if
    nothing that fits the tokens was recorded, if there were several forward passes, or if no batch had that
    item.
    """
    if model is not None and not isinstance(model, nn.Module):
        raise MhaError(
            "mha.record takes the model as a torch.nn.Module and its tokens by name; got "
            "{type}. Write mha.record(model, tokens=…), or mha.record(tokens=…); the model "
            "of a torch.export program is program.module().",
            type=type(model).__name__,
        )
    one_of("misfit", misfit, MISFITS, parameter="misfit")
    if check is not None:
        one_of("check", check, CHECKS, parameter="check")
        if model is None and check == MIXING:
            raise MhaError(
                'check="mixing" checks the modules of a model: mha.record(model, tokens=…, check=…).'
            )
    if isinstance(part, str) and part != ALL:
        raise MhaError(
            'part is the number of a part, from 0, or "all" for one layer of all parts; got {part}.',
            part=shown(part),
            fixes=({"part": ALL},),
        )
    if batch is not None:
        at_least_1("batch", batch, Phrase("texts"))
    if kinds is not None and not isinstance(kinds, list | tuple):
        raise MhaError("kinds is a list with the kind of each call; got {kinds}.", kinds=shown(kinds))
    return Recorder(
        sides_of(tokens, keys),
        whole("item", item),
        kinds,
        array_source(source, RecordedSource),
        model=model,
        batch=batch,
        misfit=misfit,
        part=part if isinstance(part, str) else whole("part", part),
        check=check,
    )


class Recorder:
    """The context manager of `record`; its `trace` has the calls made inside it."""

    def __init__(
        self,
        sides: Sides,
        item: int,
        kinds: Sequence[str] | None,
        source: RecordedSource,
        *,
        model: nn.Module | None = None,
        batch: int | None = None,
        misfit: str = "name",
        part: "int | str" = 0,
        check: str | None = None,
    ):
        self.sides, self.item, self.kinds, self.source = sides, item, kinds, source
        self.model, self.batch, self.misfit, self.part = model, batch, misfit, part
        self._passes = [ForwardPass()]
        self._unread: set[nn.Module | None] = set()  # modules with attention that could not be read
        self._count = 0
        self._n_texts = 1  # texts in the largest batch
        self._eager_mode = EagerMode(
            self._add_followed,
            every_row=True,
            locate=lambda: self._here()[1],
            on_concat=self._add_joined,
            on_lost=partial(self._add_followed, is_lost=True),
        )
        self._reader = sdpa.SdpaReader()
        self._block: FrameType | None = None
        self._root: Root | None = None
        self._names = {} if model is None else {part: name for name, part in model.named_modules()}
        self._modules = ModuleUses(self._names, self._eager_mode.undisturbed)
        # For the id of a call's result: the result, its version, its axis of texts, the index, the call.
        self._results: dict[int, tuple[weakref.ref, int, int | None, int, RecordedCall]] = {}
        # Of the current call: the number of parts of the item, whether it is one of several items, and how
        # many sequences it reads at once.
        self._n_parts, self._is_one_of_several_items, self._n_read = 1, False, 1
        # Of the attention that ran in the outermost module, in order: what the proof of its tokens needs.
        self._seen: list[Seen | None] = []
        self._proof = Proof({}, {}, set())
        self._mixing_asked: set[bool] = set()  # of each run of an outermost module, whether other mixing was
        self._frame: FrameType | None = None  # of the previous call's module
        self._is_of_beams = False  # whether the current call reads the beams of a search
        self._check = None if model is None else check
        self._mixing: dict[str, str] = {}  # the reasons to name what mixes tokens beside attention
        self._modes = ExitStack()

    def __repr__(self) -> str:
        calls = [call for each in self._passes for call in each.calls]
        alike = Counter(
            f"{count_of(call.n_heads, 'head')}, {call.sizes[0]} × {call.sizes[1]}" for call in calls
        )
        words = "; ".join(f"{count} × ({sizes})" for sizes, count in alike.items())
        tokens = count_of(len(self.sides.queries), "token")
        return f"<Recorder of {tokens}: {words or 'nothing was recorded yet'}>"

    def __enter__(self) -> "Recorder":
        self._block = sys._getframe(1)
        self._modes.enter_context(sdpa.uncompiled)
        self._modes.enter_context(self._modules.watched())
        if self._check:
            only_plain = self._check == ORDER
            self._modes.enter_context(outermost(self._names, self._prove, only_plain=only_plain))
        self._modes.enter_context(self._eager_mode)
        self._modes.enter_context(sdpa.SdpaMode(self._record_call))
        return self

    def __exit__(self, *error: Any) -> None:
        self._modes.__exit__(*error)
        self._block = self._root = self._frame = None
        self._results.clear()

    @property
    def trace(self) -> AttentionTrace:
        """The attention of the recorded forward pass, one layer for each call, in order.

        Raises `MhaError` if nothing that fits the tokens was recorded, and if there were several passes.
        """
        traces = self.traces
        if len(traces) > 1:
            raise MhaError(
                "{n_traces} forward passes were recorded; rec.traces has a trace of each. A pass ends "
                "where a module, or a function without modules, is called again in the block; what is one "
                "pass belongs into one module or function.",
                n_traces=len(traces),
            )
        return traces[0]

    @property
    @memory_errors(Phrase("This trace"))
    def traces(self) -> tuple[AttentionTrace, ...]:
        """A trace for each forward pass recorded so far, in order.

        A pass ends where the block calls the same module again, or the same function outside of all modules.
        Passes without a call that fits the tokens are named in ``source.skipped`` of the others.
        Raises `MhaError` if nothing that fits the tokens was recorded.
        """
        self._eager_mode.warn()
        passes = [self._sorted(forward) for forward in self._joined_passes()]
        fitting = [each for each in passes if each.calls]
        elsewhere = [reason for each in passes if not each.calls for reason in each.skipped]
        mixers = self._without_attention({call.name for each in fitting for call in each.calls})
        skipped = [*(reason for each in passes for reason in each.skipped), *mixers]
        if self.misfit == "raise" and skipped:
            raise MhaError(skipped[0])
        if not fitting:
            raise MhaError(listed((self._reason_for_no_trace(passes), *mixers), "space"))
        # One text alone is shared by all items.
        index("item", self.item, self._n_texts, of=Phrase("The batch"))
        if self.part not in (0, ALL) and all(call.n_parts == 1 for each in fitting for call in each.calls):
            raise MhaError(
                "part is {part}, and no layer reads its item in parts. Without part= it is shown as a whole.",
                part=self.part,
            )
        return tuple(self._trace(each, [*elsewhere, *mixers]) for each in fitting)

    @property
    def unlabelled(self) -> tuple[LayerTrace, ...]:
        """The attention that was read and is in no trace, such as that over channels: a layer for each call.

        The calls are in order; their rows and columns have no names. Of attention over the tokens that was
        not followed, it has the weights and the values.
        """
        shown = {call.number for each in self._joined_passes() for call in self._sorted(each).calls}
        calls = [call for each in self._joined_passes() for call in each.calls if call.number not in shown]
        calls += [call for each in self._passes for call in each.lost]
        calls.sort(key=lambda call: call.number)
        shared = SharedTensors()
        kinds = ["self" if call.sizes[0] == call.sizes[1] else "cross" for call in calls]
        return tuple(call.layer(kind, shared) for call, kind in zip(calls, kinds, strict=True))

    def _without_attention(self, recorded: Collection[str]) -> list[str]:
        """Sentences about layers that mix tokens by other means, in the model or in the modules that ran."""
        called = dict.fromkeys(root for each in self._passes for root in each.called)
        modules = [root for root in called if isinstance(root, nn.Module)]
        modules = modules if self.model is None else [self.model]
        layers = {
            name: Phrase("{sentence}.", sentence=text)
            for each in modules
            for name, text in without_attention(each).items()
            if name not in recorded
        }
        found = dict(self._mixing)
        for call in (call for each in self._passes for call in each.calls):
            mixed = self._proof.mixed.get(call.number)
            if mixed is not None and not any(f"{call.name}.".startswith(f"{name}.") for name in found):
                found[call.name] = mixed
        by_reason: dict[str, list[str]] = {}
        for name, reason in found.items():
            if not any(f"{name}.".startswith(f"{layer}.") for layer in layers):
                by_reason.setdefault(reason, []).append(name)
        return [*layers.values(), *(of_modules(names, reason) for reason, names in by_reason.items())]

    def _reason_for_no_trace(self, passes: Sequence[SortedPass]) -> Listed:
        """The reason why there is no trace."""
        misfits = [reason for each in passes for reason in each.misfits]
        unread = [reason for each in passes for reason in each.unread]
        unfollowed = counted(reason for each in passes for reason in each.unfollowed)
        hints = dict.fromkeys(hint for each in passes for hint in each.hints)
        found = (*unread[:1], *misfits[:1], *hints) or (NOTHING,)
        return listed((*found, *unfollowed), "space")

    def _trace(self, forward: SortedPass, elsewhere: list[str]) -> AttentionTrace:
        shared, calls = SharedTensors(), forward.calls
        kinds = kinds_of(calls, self.sides, self.kinds)
        layers = tuple(call.layer(kind, shared) for call, kind in zip(calls, kinds, strict=True))
        notes = [call.note for call in calls if call.note is not None]
        notes += [DROPOUT] if any(call.about.dropout for call in calls) else []
        proven = self._proof.proven
        unproven = [call for call in calls if call.note is None and call.number not in proven]
        if self._mixing_asked != {True}:
            notes.append(NOT_CHECKED if len(unproven) == len(calls) else NOT_MIXING)
        if unproven and notes[-1:] != [NOT_CHECKED]:
            notes.append(
                Phrase(
                    "Whether the rows and columns of {names} are the tokens in their order could not be "
                    "checked.",
                    names=few([*dict.fromkeys(call.name or call.place.text for call in unproven)]),
                )
            )
        source = replace(self.source, skipped=counted([*forward.skipped, *elsewhere]), notes=tuple(notes))
        if not self.sides.same:  # the keys are of the encoder's text
            layers = with_texts(self.sides.keys, self.sides.queries, layers)
        return AttentionTrace(self.sides.queries, layers, source)

    def _sorted(self, forward: ForwardPass) -> SortedPass:
        return sorted_pass(forward, self.sides, self.part, self._proof.against, self._eager_mode.attempts)

    def _joined_passes(self) -> list[ForwardPass]:
        """The passes; those that continue an earlier pass are joined with it."""
        passes = self._passes[:1]
        for later in self._passes[1:]:
            whole = passes[-1].continued(later) if later.calls else None
            passes = [*passes, later] if whole is None else [*passes[:-1], whole]
        return passes

    def _whole_note(self, place: Place, tiled: Tiling) -> Phrase:
        """The sentence about a layer that shows all parts of an item."""
        module = self._names.get(tiled.module) or type(tiled.module).__name__
        by_part = Phrase("part by part")
        reason = Phrase(
            "its {n_parts} parts are shown as one layer. The tokens are in the order in which {module} has "
            "them, {order}.",
            n_parts=len(tiled.tokens),
            module=module,
            order=by_part if tiled.is_part_by_part else " × ".join(map(str, tiled.sizes)),
        )
        return placed(place, reason)

    # While the block runs

    def _prove(self, module: nn.Module, given: Given | None) -> None:
        """Find out whether rows of the attention in the outermost module are the tokens in their order."""
        seen, self._seen = self._seen, []
        lengths = {len(self.sides.queries), len(self.sides.keys)}
        if self._check == ORDER:
            is_strange = False
            # The model's code may raise anything; the notes say that nothing is proven.
            with self._eager_mode.undisturbed(), suppress(Exception):
                if given is not None:
                    proven, is_strange = order(module, given, seen, lengths)
                    self._proof.proven.update(proven)
            if not is_strange:
                self._mixing_asked.add(False)
                return
        self._mixing_asked.add(True)
        attempts = [each for each in self._eager_mode.attempts if each.is_attention and not each.followed]
        lost = self._names_of([*(each.place.module for each in attempts), *self._unread])
        calls = [call for each in self._passes for call in each.calls]
        attends = {*lost, *self._names_of(call.place.module for call in calls)}

        def reason(name: str) -> str:
            return MIXES if name not in attends else BESIDE if name in lost else BEHIND

        mixers = Mixers(lengths, reason)
        found = Proof({}, {}, set())
        with self._eager_mode.undisturbed():
            try:
                if given is None:
                    raise TypeError("it cannot be copied")
                is_one_text = self.sides.same
                found = proof(module, given, self._names, mixers, attends, seen, is_one_text=is_one_text)
            except Exception:  # raised by the model's code: a module that cannot be copied may not run
                if self._check == MIXING:
                    self._mixing.setdefault(self._names[module] or type(module).__name__, UNCHECKED)
        for name, why in mixers.findings.items():
            self._mixing.setdefault(name, why)
        self._proof.against.update(found.against)
        self._proof.mixed.update(found.mixed)
        self._proof.proven.update(found.proven)

    def _names_of(self, modules: Iterable[nn.Module | None]) -> set[str]:
        """The names of those of these modules that the recorded model has."""
        return {self._names[module] for module in modules if module in self._names}

    @property
    def _index(self) -> int:
        """The index of the item, or of its part, in the batch of the current call."""
        return self.part if self._n_parts > 1 and isinstance(self.part, int) else self.item

    def _n_sequences(self, where: Caller, lengths: Sequence[int], q_shape: Sequence[int]) -> int | None:
        """How many sequences are read at once; more than one text where that is read in parts.

        Raises `MhaError` where the caller has said a number that does not fit them.
        """
        read = where.batch(lengths, q_shape)
        if self.batch in (None, 1):
            return read or self.batch
        if read and read % self.batch:
            raise MhaError(
                "it reads {n_read} texts at once, and batch is {batch}; leave batch= out.",
                n_read=read,
                batch=self.batch,
            )
        return self.batch

    def _find_parts(self, where: Caller, lengths: Sequence[int], n_read: int | None) -> None:
        """Find the number of parts of an item in a call, which reads `n_read` sequences at once.

        Raises `MhaError` where parts of several items are in one batch, for a part that does not exist, and
        where all parts do not have the tokens together.
        """
        items = where.items(lengths) if self.batch is None else {self.batch}
        self._n_parts, self._is_one_of_several_items = 1, n_read == 1 and bool(items) and 1 not in items
        self._n_read = n_read or 1
        if n_read in (None, 1) or not items or n_read in items:
            return
        if len(items) > 1 or items != {1}:
            given = listed(sorted(map(str, items)), "or")
            raise MhaError(
                "it reads {n_read} sequences at once, and the model was given {given} items. It cannot be "
                "told whose each is; record one item at a time, or give batch=1 if all of them are parts of "
                "one.",
                n_read=n_read,
                given=given,
            )
        index("item", self.item, 1, of=Phrase("The batch"))
        n_query, n_key = lengths
        n_tokens = n_read * n_query
        if isinstance(self.part, int):
            index("part", self.part, n_read, of=Phrase("The item"))
        elif n_query != n_key or (n_tokens, n_tokens) not in kinds_by_sizes(self.sides):
            raise MhaError(
                "its {n_parts} parts of {n_query} queries and {n_key} keys do not make up {n_tokens} tokens.",
                n_parts=n_read,
                n_query=n_query,
                n_key=n_key,
                n_tokens=len(self.sides.queries),
            )
        self._n_parts = n_read

    def _attended(
        self,
        where: Caller,
        lengths: Sequence[int],
        n_read: int | None,
        q: Tensor,
        k: Tensor,
        by_part: Callable[[Tensor], Tensor],
        read: Callable[[int], tuple[Attended, Facts]],
        check: Callable[[Attended, int], None] = lambda attended, at: None,
    ) -> tuple[Attended, Facts, Tiling | None]:
        """The item of a call that reads `n_read` sequences, its part, or all parts as one; each is checked.

        q and k are as the code has them, and `by_part` brings them into (part, head, row, width). If the
        parts are shown as one layer, the tiling says where the tokens are. Raises as `_find_parts` does.
        """
        self._find_parts(where, lengths, n_read)
        self._by_text, self._of_texts = (q, by_part), None
        if self._n_read > 1 and self._n_parts == 1 and k.shape[-2] > 1:
            self._of_texts = by_part(k).double().sum((1, 3)).cpu()
        tiled, numbers = None, [self._index]
        if self._n_parts > 1 and self.part == ALL:
            around = (
                (frame.f_locals["self"], (frame.f_locals["args"], frame.f_locals["kwargs"]))
                for frame in where.frames
            )
            tiled = tiling(around, q, by_part, (self._n_parts, lengths[0]))
            numbers = [*range(self._n_parts)]
        found = [read(at) for at in numbers]
        for at, (attended, about) in zip(numbers, found, strict=True):
            if not about.dropout:
                check(attended, at)
        one, about = found[0]
        return one if tiled is None else tiled.attended([each for each, _ in found]), about, tiled

    def _here(self) -> tuple[Caller, Place]:
        """The caller and the place of the running operation; a forward pass that begins with it is added."""
        where = caller(self._block, self.model)
        root, innermost = where.root, where.innermost
        outside = self._is_outside(where)
        if not outside and root is not None and (self._root is None or root.frame is not self._root.frame):
            self._is_of_beams = searches_beams(root.frame, self._block)
            if root.called in self._passes[-1].called:
                self._passes = [*self._joined_passes(), ForwardPass()]
            self._passes[-1].called.append(root.called)
            self._root = root
        text = where.line
        if innermost is not None:
            name = self._names.get(innermost)
            text = f"{name} ({text})" if name else f"{text} ({type(innermost).__name__})"
        return where, Place(text, self._passes[-1], where.module)

    def _is_outside(self, where: Caller) -> bool:
        """Whether neither a module nor a method of the recorded model is running."""
        if not self._names or any(module in self._names for module in where.modules()):
            return False
        called = None if where.root is None else where.root.called
        return not (isinstance(called, tuple) and called[1] in map(id, self._names))

    def _record_call(self, function: Callable, args: tuple, kwargs: dict, result: Any) -> None:
        """Record a call of one of torch's functions; an error here does not reach the model."""
        # In this order: leaving inference mode turns gradients on again.
        with torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():
            where, place = self._here()
            if not sdpa.is_kernel(function):
                self._seen.append(None)
            if self._is_outside(where):
                self._skip(place, OUTSIDE)
                return
            try:
                if function is sdpa.FORWARD:
                    self._add_forward(place, where, sdpa.SIGNATURE.bind(*args, **kwargs).arguments, result[0])
                    return
                if sdpa.is_kernel(function):
                    name = getattr(function, "__name__", function)
                    raise MhaError(
                        "attention was not followed: the code calls the operator {name} itself.", name=name
                    )
                if function is not sdpa.SDPA:
                    kwargs, args = sdpa.flex_arguments(*args, **kwargs), ()
                    result = result[0]
                self._add_sdpa(place, where, result, *args, **kwargs)
            except MhaError as error:
                self._skip(place, error.phrase)
            except Exception as error:  # in our own code: it must not reach the model
                reason = Phrase("it was not recorded, by an error of ours: {error}", error=repr(error))
                self._skip(place, reason)

    def _skip(self, place: Place, reason: str) -> None:
        place.forward_pass.unread.append(placed(place, reason))
        self._unread.add(place.module)

    @memory_errors(Phrase("Its recording"))
    def _add_sdpa(
        self,
        place: Place,
        where: Caller,
        result: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """A call of `scaled_dot_product_attention`, as one layer."""
        packed = 1 if query.is_nested else where.packed_heads(query.shape)
        asked, folding = query, None
        query, output = sdpa.unpacked(query, packed), sdpa.unpacked(result, packed)
        attn_mask = None if attn_mask is None else sdpa.unpacked(attn_mask, packed)
        batch = self.batch
        if query.dim() > 1 and not query.is_nested:
            batch = self._n_sequences(where, (query.shape[-2], key.shape[-2]), query.shape)
        if query.dim() == value.dim() == 3 and (folding := self._folding(value, batch)) is not None:
            parts = (query, key, value, output)
            query, key, value, output = (_unfolded(part, *folding) for part in parts)
            attn_mask = None if attn_mask is None else _unfolded(attn_mask, *folding)
            result = output
        lengths = (query.shape[-2], key.shape[-2]) if query.dim() > 1 else ()
        alone, told = where.items(lengths) == {1}, self.batch not in (None, 1)
        lead, axis = sdpa.lead(batch, query, key, value, alone=alone, told=told)
        if not self._eager_mode.are_of_tokens(key, value):
            raise MhaError("attention was not followed: {reason}.", reason=following.NO_TOKENS)
        attended, about, tiled = self._attended(
            where,
            lengths,
            batch if axis is None else lead[axis],
            asked,
            key,
            lambda part: by_part(_unfolded(part, *folding) if folding else part, lead, axis),
            lambda at: self._reader.attended(lead, axis, at, query, key, value, attn_mask, *args, **kwargs),
            lambda attended, at: sdpa.check_result(attended, of_item(output, axis, at)),
        )
        self._add(place, attended, about, result, axis, output=output, frame=where.frame, tiled=tiled)

    def _folding(self, values: Tensor, batch: int | None) -> tuple[tuple[int, int], int] | None:
        """The two axes in the first axis of values (text and head, token, width), if they are proven."""
        if batch is None or values.is_nested or len(values) == batch:
            return None
        return self._eager_mode.folding(values, batch)

    @memory_errors(Phrase("Its recording"))
    def _add_forward(self, place: Place, where: Caller, arguments: dict, output: Tensor) -> None:
        """A call of `multi_head_attention_forward`, run again up to the q, k and v of its heads."""
        dropout = arguments["dropout_p"] if arguments.get("training", True) else 0.0
        causal = arguments.get("is_causal", False) and not arguments.get("need_weights", True)
        query, key, value = (arguments[name] for name in ("query", "key", "value"))
        q, k, v, mask, _, is_causal = sdpa.inner_arguments(arguments, is_causal=causal)
        lead, axis = sdpa.lead(q.shape[0], q, k, v)
        w_o, b_o = arguments["out_proj_weight"], arguments["out_proj_bias"]

        def check(attended: Attended, at: int) -> None:
            one = output if output.dim() == 2 else output[:, item_index(at, output.shape[1])]
            sdpa.check_result(attended, one, lambda concat: nn.functional.linear(concat, w_o, b_o))

        attended, about, tiled = self._attended(
            where,
            (q.shape[-2], k.shape[-2]),
            q.shape[0],
            q,
            k,
            lambda part: by_part(part, lead, axis),
            lambda at: self._reader.attended(lead, axis, at, q, k, v, mask, dropout, is_causal),
            check,
        )
        self._n_texts = max(self._n_texts, q.shape[0] if self._n_parts == 1 else 1)
        tensors: dict[str, Tensor] = {}
        if query is key is value:
            x = query[:, None] if query.dim() == 2 else query
            if tiled is None:
                tensors["x"] = x[:, item_index(self._index, x.shape[1])]
            else:
                tensors["x"] = tiled.whole(x.transpose(0, 1).flatten(0, 1))
        apart = key is value is not query and not (key.shape == query.shape and torch.equal(key, query))
        matrices = sdpa.projections(arguments)._asdict()
        self._add(
            place, attended, about, tensors=tensors, matrices=matrices, looks_outside=apart, tiled=tiled
        )

    def _add_followed(
        self, followed: FollowedAttention, output: Tensor, result: Tensor, *, is_lost: bool = False
    ) -> bool:
        """Record an attention in the model's own code. False if it was not exact.

        One that is lost, and known by its weights alone, is only for `unlabelled`.
        """
        sizes = followed.q.shape[2], followed.k.shape[2]
        if is_lost and (followed.q.numel() > MAX_LOST or sizes not in kinds_by_sizes(self.sides)):
            return False
        where, place = self._here()
        if not following.is_exact(followed):
            return False
        if not is_lost:
            self._seen.append(None)
        if self._is_outside(where):
            if not is_lost:
                self._skip(place, OUTSIDE)
            return True
        lead: tuple[int, ...] = output.shape[:-2]
        n_shared = followed.q.shape[1] // followed.k.shape[1]
        try:
            batch = self._n_sequences(where, sizes, (*lead, *followed.q.shape[2:]))
            with torch.inference_mode(False), torch.no_grad():
                folding = self._folding(followed.v[0], batch) if lead == followed.v.shape[1:2] else None
                if folding is None:
                    axis = text_axis(
                        lead,
                        batch,
                        followed.inside,
                        alone=where.items(sizes) == {1},
                        told=self.batch not in (None, 1),
                        n_shared=n_shared,
                    )
                else:
                    lead, axis = folding
                    result = output = output.unflatten(0, lead)
                facts = Facts(by_hand=True, dropout=followed.dropout)
                attended, about, tiled = self._attended(
                    where,
                    sizes,
                    batch if axis is None else lead[axis],
                    followed.q,
                    followed.k.repeat_interleave(n_shared, 1),
                    lambda part: by_part(part.unflatten(1, lead)[0], lead, axis),
                    lambda at: (following.attended(followed, lead, axis, at), facts),
                )
                if is_lost:
                    self._add_lost(place, attended, result, axis, output)
                    return True
                self._add(place, attended, about, result, axis, output=output, frame=where.frame, tiled=tiled)
        except MhaError as error:
            if not is_lost:  # its softmax is named
                self._skip(place, error.phrase)
        return True

    def _add_lost(
        self, place: Place, attended: Attended, result: Tensor, axis: int | None, output: Tensor
    ) -> None:
        """Keep the weights, in the place of queries, and the values of attention that was not followed."""
        self._count += 1
        weights, v = (contiguous_copy(part[0]) for part in (attended.q, attended.v))
        queries = (Queries(weights, ScoreRule(), v.shape[1]),)
        name = self._names.get(place.module, "")
        call = RecordedCall(self._count, place, name, queries, v, v, Facts(by_hand=True, missing=LOST))
        place.forward_pass.lost.append(call)
        self._await_output(call, result, axis, of_item(output, axis, self._index))

    def _add(
        self,
        place: Place,
        attended: Attended,
        about: Facts,
        result: Tensor | None = None,
        axis: int | None = None,
        tensors: Mapping[str, Tensor] = MappingProxyType({}),
        matrices: Mapping[str, Tensor | None] = MappingProxyType({}),
        output: Tensor | None = None,
        looks_outside: bool = False,
        frame: FrameType | None = None,
        tiled: Tiling | None = None,
    ) -> None:
        """Record a call; `result` is its output in the code, `output` the same as (…, query, d_v)."""
        self._count += 1
        n_texts = 1 if axis is None or result is None else result.shape[axis]
        self._n_texts = max(self._n_texts, n_texts if self._n_parts == 1 else 1)
        rows = TextRows(n_texts, self._index, tiled)
        origin = self._modules.provenance(place.module, attended, rows)
        q, k, v = (contiguous_copy(part[0]) for part in (attended.q, attended.k, attended.v))
        name = self._names.get(place.module, "")
        call = RecordedCall(
            self._count,
            place,
            name,
            (Queries(q, attended.rule.item(0).mapped(compact), k.shape[1]),),
            k,
            v,
            replace(about, adjustments=origin.adjustments),
            copies({**origin.tensors, **tensors}),
            copies({**origin.projections, **matrices}),
            looks_outside or CROSS.search(name) is not None,
            n_parts=1 if tiled is not None else self._n_parts,
            note=None if tiled is None else self._whole_note(place, tiled),
            is_one_of_several_items=self._is_one_of_several_items,
            ambiguity=BEAMS if self._is_of_beams else "",
            of_texts=self._of_texts,
        )
        if self._check and self._seen and self._n_parts == 1:
            texts = 1 if result is None else axis  # torch's own function has (query, text, width)
            mask = call.queries[0].rule.mask
            seen = torch.ones(1, dtype=torch.bool) if mask is None else mask.flatten(0, -2).any(0)
            seen = seen.expand(call.k.shape[1])
            self._seen[-1] = Seen(call.number, *self._by_text, self._index, texts, seen)
        call = self._added(place.forward_pass, call)
        if result is not None and output is not None:
            self._mark_ambiguous(call, axis, output, frame)
            if tiled is not None:
                heads = by_part(output, output.shape[:-2], axis).transpose(1, 2).flatten(2).flatten(0, 1)
                self._modules.await_output(call, tiled.whole(heads), rows)
                return
            self._watch_result(call, result, axis, of_item(output, axis, self._index))

    def _mark_ambiguous(
        self, call: RecordedCall, axis: int | None, output: Tensor, frame: FrameType | None
    ) -> None:
        """Mark calls as ambiguous that one run of a module makes in a row, each of one head or one per text.

        Each may be one head of all texts, or some heads of one text.
        """
        lead = output.shape[:-2]
        is_single = self._n_read > 1 and (lead.numel() == 1 if axis is None else len(lead) == 1)
        previous, calls = self._frame, call.place.forward_pass.calls
        self._frame = frame if is_single else None
        if is_single and frame is not None and frame is previous and len(calls) > 1 and calls[-1] is call:
            for each in calls[-2:]:
                each.ambiguity = SLICES

    def _watch_result(self, call: RecordedCall, result: Tensor, axis: int | None, heads: Tensor) -> None:
        """Watch for later uses of a result: a concatenation, and W^O.

        `heads` are the outputs of the heads for the text, (head, query, d_v).
        """
        key = id(result)
        gone = weakref.ref(result, lambda _: self._results.pop(key, None))
        self._results[key] = (gone, version(result), axis, self._index, call)
        self._await_output(call, result, axis, heads)

    def _await_output(self, call: RecordedCall, result: Tensor, axis: int | None, heads: Tensor) -> None:
        """Wait for the W^O that multiplies the outputs of the heads."""
        n_texts = 1 if axis is None else result.shape[axis]
        waiting = call, heads.transpose(0, 1).flatten(1), TextRows(n_texts, self._index)
        self._modules.await_output(*waiting)
        if self._names:
            self._eager_mode.flow.watch(result, partial(self._modules.found, *waiting))

    def _added(self, forward: ForwardPass, call: RecordedCall) -> RecordedCall:
        """Add the call to its pass, joined to an earlier call if it continues that one."""
        for at, earlier in enumerate(forward.calls):
            if (whole := earlier.continued(call)) is not None:
                forward.calls[at] = whole
                return whole
        forward.calls.append(call)
        return call

    def _add_joined(self, parts: Sequence[Tensor], joined: Tensor) -> None:
        """Results were concatenated: calls of one head each are then the heads of one layer."""
        calls: list[RecordedCall] = []
        for part in parts:
            if (result := self._results.get(id(part))) is None:
                return
            reference, changes, axis, at, call = result
            if reference() is not part or version(part) != changes:
                return
            calls.append(call)
        forward = calls[0].place.forward_pass
        layer = side_by_side(calls) if all(call in forward.calls for call in calls) else None
        if layer is not None:
            forward.calls = [call for call in forward.calls if call not in calls]
            layer = self._added(forward, layer)
            self._watch_result(layer, joined, axis, of_item(joined, axis, at))


def _unfolded(part: Tensor, lead: tuple[int, int], axis: int) -> Tensor:
    """Queries, keys, values, a mask or a result (text and head, …) as (text, head, …)."""
    if part.dim() != 3 or len(part) != lead[0] * lead[1]:
        return part
    return part.unflatten(0, lead).transpose(0, axis)


def by_part(tensor: Tensor, lead: Sequence[int], axis: int | None) -> Tensor:
    """A tensor (…, row, width) as (part, head, row, width); `axis` of `lead` counts the parts, or texts."""
    if axis is None:
        return tensor.reshape(1, -1, *tensor.shape[-2:])
    tensor = tensor.reshape((1,) * (len(lead) + 2 - tensor.dim()) + tuple(tensor.shape))
    if tensor.shape[axis] == 1:
        tensor = tensor.expand(*(lead[axis] if at == axis else -1 for at in range(tensor.dim())))
    return tensor.movedim(axis, 0).reshape(lead[axis], -1, *tensor.shape[-2:])
