"""Which recorded calls are layers of the tokens, of which kind; and a sentence about each of the others."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mha_core.capture.own_code.order import TWO_TEXTS
from mha_core.capture.own_code.scores import Attempt
from mha_core.capture.recorded_call import ForwardPass, Place, RecordedCall
from mha_core.errors import Listed, MhaError, Phrase, listed, one_of
from mha_core.traces.layer import KINDS
from mha_core.traces.tokens import Sides

NO_VALUES = Phrase("no values were multiplied with its weights")
LOOP = Phrase(
    "it is computed for one item at a time, and it cannot be told for which; record one item at a time."
)
BEHIND_TWO_TEXTS = Phrase(
    "it runs behind attention between two texts, and it cannot be told which of them it reads; give the "
    "tokens of the second one as keys=, and kinds= if it is as long as the first."
)
AGAIN = Phrase(
    "its weights are multiplied with further tensors, which is not shown; the outputs of the layer are those "
    "of its values."
)
GIVE_ONE = Phrase(
    "Give one token for each position, without those that are written and never read; where queries look at "
    "another text, give its tokens as keys=."
)
STEPS = Phrase(
    "Weights of one query at a time, as of a recurrent decoder, are one matrix by "
    "mha.from_weights(torch.cat(steps, dim=-2), tokens=, keys=)."
)
MAX_LISTED = 4  # modules in a sentence


class SortedPass(NamedTuple):
    """A forward pass: the calls that fit the tokens, and sentences about all others.

    `hints` say how calls of other sizes can be shown.
    """

    calls: list[RecordedCall]
    misfits: list[str]
    unread: list[str]
    unfollowed: list[str]
    hints: Sequence[str]

    @property
    def skipped(self) -> list[str]:
        """The sentences about everything that is left out."""
        return [*self.unread, *self.misfits, *self.unfollowed]


def kinds_by_sizes(sides: Sides) -> dict[tuple[int, int], str]:
    """The kind of a call by its numbers of queries and keys."""
    n_query, n_key = len(sides.queries), len(sides.keys)
    if sides.same:
        return {(n_query, n_query): "self"}
    return {(n_key, n_key): "encoder", (n_query, n_query): "decoder", (n_query, n_key): "cross"}


def sorted_pass(
    forward: ForwardPass,
    sides: Sides,
    part: int | str,
    against: Mapping[int, str],
    attempts: Sequence[Attempt],
) -> SortedPass:
    """The calls of a pass that fit the tokens, and sentences about all others.

    `against` has the reason why a call, by its number, is not over these tokens. `attempts` is attention that
    was begun in the model's own code. `part` is the one that is shown of an item that is read in parts.
    """
    kinds = kinds_by_sizes(sides)
    calls = [_without_unused_keys(call, kinds) for call in forward.calls]
    of_sizes = [call for call in calls if call.sizes in kinds]
    of_two = [call for call in of_sizes if call.looks_outside and sides.same]
    first = min((call.number for call in of_two), default=math.inf)
    looped = Counter(call.place.module for call in calls if call.is_one_of_several_items)
    ambiguous = {call: call.ambiguity for call in of_sizes if call.ambiguity}
    ambiguous |= {call: against[call.number] for call in of_sizes if call.number in against}
    ambiguous |= {
        call: LOOP for call in calls if call.is_one_of_several_items and looped[call.place.module] > 1
    }
    behind = [call for call in of_sizes if call.number > first and call not in of_two]
    ambiguous |= dict.fromkeys(behind, BEHIND_TWO_TEXTS)
    fitting = [call for call in of_sizes if call not in of_two and call not in ambiguous]
    of_other_sizes = [call for call in calls if call not in of_sizes]
    misfits = [_misfit(call, kinds) for call in of_other_sizes]
    hints = [GIVE_ONE] if of_other_sizes else []
    hints += [STEPS] if any(call.sizes[0] == 1 < call.sizes[1] for call in of_other_sizes) else []
    misfits += [placed(call.place, TWO_TEXTS) for call in of_two]
    misfits += [placed(call.place, reason) for call, reason in ambiguous.items()]
    misfits += [_other_parts(call, part) for call in fitting if call.n_parts > 1]
    unfollowed = [
        reason
        for attempt in attempts
        if forward.has(attempt.place) and (reason := _unfollowed(attempt, kinds))
    ]
    return SortedPass(fitting, misfits, forward.unread, unfollowed, hints)


def kinds_of(calls: Sequence[RecordedCall], sides: Sides, named: Sequence[str] | None) -> list[str]:
    """The kind of each call as the caller has `named` it, else by its numbers of queries and keys."""
    if named is not None:
        if len(named) != len(calls):
            raise MhaError(
                "kinds names {n_kinds} calls, and {n_calls} were recorded.",
                n_kinds=len(named),
                n_calls=len(calls),
            )
        return [one_of(Phrase("kind of layer"), kind, KINDS, parameter="kinds") for kind in named]
    kinds, length = kinds_by_sizes(sides), len(sides.queries)
    if not sides.same and len(kinds) < 3:
        raise MhaError(
            "tokens and keys are {length} each, so lengths do not tell whose call is whose; say it with "
            "kinds=: encoder, decoder or cross for each of the {n_calls} calls.",
            length=length,
            n_calls=len(calls),
        )
    return [kinds[call.sizes] for call in calls]


def _misfit(call: RecordedCall, kinds: Iterable[tuple[int, int]]) -> str:
    """The reason why a call is not a layer."""
    n_query, n_key = call.sizes
    reason: str = Phrase(
        "{n_query} queries and {n_key} keys; the tokens allow {allowed}.",
        n_query=n_query,
        n_key=n_key,
        allowed=listed((listed(sizes, "and") for sizes in kinds), "comma"),
    )
    if (call.n_parts * n_query, call.n_parts * n_key) in kinds:
        hint = Phrase('part="all" shows its {n_parts} parts as one layer.', n_parts=call.n_parts)
        reason = listed((reason, hint), "space")
    return placed(call.place, reason)


def _without_unused_keys(call: RecordedCall, kinds: Iterable[tuple[int, int]]) -> RecordedCall:
    """A call without the unused keys of a cache behind the text, if it fits then."""
    if call.sizes in kinds:
        return call
    lengths = (n_key for n_query, n_key in kinds if n_query == call.sizes[0])
    return next(filter(None, map(call.cropped, lengths)), call)


def _other_parts(call: RecordedCall, part: int | str) -> str:
    """The sentence about a layer that shows one part of an item."""
    reason = Phrase(
        "it reads the item in {n_parts} parts. Part {part}, from 0, is shown; part= chooses another, and "
        'part="all" with the tokens of all parts shows one layer.',
        n_parts=call.n_parts,
        part=part,
    )
    return placed(call.place, reason)


def _unfollowed(attempt: Attempt, kinds: Iterable[tuple[int, int]]) -> str:
    """The reason why an attention over these tokens, or in another layout, is not all in a layer; else ""."""
    if attempt.followed:
        return placed(attempt.place, AGAIN) if attempt.uses > 1 and attempt.sizes in kinds else ""
    reason = attempt.lost or NO_VALUES
    sizes = next((one for one in (attempt.sizes, *attempt.factors) if one in kinds), None)
    if sizes or (attempt.is_attention and attempt.lost and not attempt.rearranged):
        n_query, n_key = sizes or attempt.sizes
        sentence = Phrase(
            "attention over {n_query} × {n_key} tokens was not followed: {reason}."
            if sizes
            else "attention over {n_query} × {n_key} was not followed: {reason}.",
            n_query=n_query,
            n_key=n_key,
            reason=reason,
        )
        return placed(attempt.place, sentence)
    if not attempt.rearranged:
        return ""
    return placed(attempt.place, Phrase("attention was not followed: {reason}.", reason=reason))


def placed(place: Place, reason: str) -> Phrase:
    """The sentence about a call at a place in the code."""
    return Phrase("{place}: {reason}", place=place.text, reason=reason)


def of_modules(names: Sequence[str], reason: str) -> str:
    """A sentence about modules."""
    return Phrase(
        "{names}: each {reason}." if names[1:] else "{names}: it {reason}.", names=few(names), reason=reason
    )


def few(names: Sequence[str]) -> Listed:
    """The names of modules; it has the first ones."""
    n_more = len(names) - MAX_LISTED
    more = [Phrase("{count} more", count=n_more)] if n_more > 0 else []
    return listed([*names[:MAX_LISTED], *more], "and")


def counted(reasons: Iterable[str]) -> tuple[str, ...]:
    """Each sentence once, with its count."""
    return tuple(
        reason if count == 1 else Phrase("{reason} ({count} times)", reason=reason, count=count)
        for reason, count in Counter(reasons).items()
    )
