"""Which word of a made-up sentence answers which question about which other word.

Sentences come from templates, so the part of speech of each word is known: a slot has that of its class, any
other word the one that the language's file lists (`[parts_of_speech]`) or that the template gives it, as in
``like/verb``. A clause inside another one is in brackets: ``the dog ( that slept ) saw me``. In Chinese it
comes before the noun that it describes: ``( 追 猫 的 ) 狗``.
"""

from collections.abc import Sequence
from typing import NamedTuple

NOUN, PRONOUN, VERB, AUXILIARY, PREDICATE = "noun", "pronoun", "verb", "auxiliary", "predicate"
DETERMINER, ADJECTIVE, PREPOSITION, ADVERB = "determiner", "adjective", "preposition", "adverb"
PARTICLE = "particle"  # between two words of one phrase: 的, 了
LOCALIZER = "localizer"  # after its noun: 里, 上
BOUNDARY = "boundary"  # where a clause ends: conjunctions and punctuation
RELATIVE = "relative"  # that, who, which, at the start of a clause about the noun before it
AGENT_MARKER = "agent marker"  # 被: the next noun is the agent
OBJECT_MARKER = "object marker"  # 把: the next noun is the patient
PASSIVE_VERB = "passive verb"  # unmarked: 书 放 在 桌子 上, the book was put on the table
INTERJECTION = "interjection"  # has no links
PARTS = (
    NOUN, PRONOUN, VERB, AUXILIARY, PREDICATE, DETERMINER, ADJECTIVE, PREPOSITION, ADVERB, PARTICLE,
    LOCALIZER, BOUNDARY, RELATIVE, AGENT_MARKER, OBJECT_MARKER, PASSIVE_VERB, INTERJECTION,
)  # fmt: skip
# Where a person may use other words.
CONTENT = frozenset((NOUN, VERB, PASSIVE_VERB, ADJECTIVE, PREDICATE, ADVERB))
BE = frozenset(
    ["was", "were", "is", "are", "am", "be", "been", "being", "wasn't", "weren't", "isn't", "aren't"]
)
HAVE_OR_DO = frozenset(["has", "have", "had", "do", "does", "did"])
STOPS = frozenset(".?!。？！")
BY = "by"
OF = "的"  # links what is before it to the noun after it
GIVEN_TO = "给"  # after a verb: the first noun after it receives the second


class TaggedWord(NamedTuple):
    """A word of a sentence, its part of speech, and the depth of its clause.

    `begins` is True for the first word of a clause in brackets, which separates it from one just before.
    """

    text: str
    part: str
    depth: int = 0
    begins: bool = False


class Link(NamedTuple):
    """The answer to `question` about the word at `query` is the word at `key`; None: no such question."""

    query: int
    question: str
    key: int | None
    name: str  # one of `questions.LINKS`


def links(words: Sequence[TaggedWord]) -> list[Link]:
    """The links that the grammar of the sentence implies; [CLS] at position 0 has none."""
    reading = _Reading(words)
    reading.read_phrases()
    reading.read_clauses()
    return list(reading.found.values())


class _Reading:
    """The state of one sentence while its links are found."""

    def __init__(self, words: Sequence[TaggedWord]):
        self.words = _in_context(words)
        self.found: dict[tuple[int, str], Link] = {}
        # noun → the preposition or marker before it, or the noun that it belongs to
        self.governed: dict[int, int] = {}

    def _add(self, query: int, question: str, key: int | None, name: str) -> None:
        if key is not None:
            self.found.setdefault((query, question), Link(query, question, key, name))

    def _part(self, at: int) -> str:
        """The part of speech of a word; "" behind the end."""
        return self.words[at].part if at < len(self.words) else ""

    def _noun_after(self, at: int, depth: int | None = None) -> int | None:
        """The noun or pronoun that ends the phrase started before `at`, in its clause or at that depth."""
        depth = self.words[at - 1].depth if depth is None else depth
        while at < len(self.words):
            if self.words[at].depth > depth and (end := self._clause_before_noun(at)) is not None:
                at = end
            elif self._part(at) == ADVERB:  # a very old dog
                if self._part(at + 1) != ADJECTIVE:
                    break
            elif self._part(at) not in (DETERMINER, ADJECTIVE, PARTICLE):
                break
            at += 1
        if self._part(at) in (NOUN, PRONOUN) and self.words[at].depth == depth:
            return at
        return None

    def _owned_after(self, at: int, depth: int | None = None) -> int | None:
        """As `_noun_after`, but the owned noun: 书, not 朋友, in 朋友 的 书."""
        noun = self._noun_after(at, depth)
        owned = self._noun_after(noun + 1) if noun is not None and self._belongs(noun) else None
        return noun if owned is None else owned

    def _clause_before_noun(self, at: int) -> int | None:
        """Where the clause around the position ends, if it describes the noun after it: 追 猫 的."""
        depth = self.words[at].depth
        while at + 1 < len(self.words) and self.words[at + 1].depth >= depth:
            if self._begins_at_depth(at + 1, depth):
                break
            at += 1
        return at if depth and self.words[at].text == OF else None

    def read_phrases(self) -> None:
        for at, word in enumerate(self.words):
            if word.part in (DETERMINER, ADJECTIVE):
                noun = self._noun_after(at + 1)
                if noun is not None and self._part(noun) == NOUN:
                    self._add(
                        at, "noun", noun, f"{'article' if word.part == DETERMINER else 'adjective'} to noun"
                    )
            elif word.part in (PREPOSITION, AGENT_MARKER, OBJECT_MARKER):
                noun = self._owned_after(at + 1)
                if noun is None:
                    continue
                self.governed[noun] = at
                self._add(at, "noun", noun, "preposition to object")
                if word.part == PREPOSITION and self._part(noun) == NOUN:
                    self._add(noun, "object", at, "object to preposition")
            elif word.part == LOCALIZER and at and self._part(at - 1) == NOUN:
                self._add(at, "noun", at - 1, "preposition to object")
                self.governed.setdefault(at - 1, at)
            elif word.part in (NOUN, PRONOUN) and self._belongs(at):
                noun = self._noun_after(at + 1)
                if noun is not None:
                    self.governed.setdefault(at, noun)
                    self._add(at, "noun", noun, "article to noun")

    def _belongs(self, at: int) -> bool:
        """Whether a particle links the word to the noun after it: 我 的 书."""
        return at + 1 < len(self.words) and self.words[at + 1].text == OF

    def _subject(self, at: int) -> int | None:
        """The nearest noun before the position in the same clause that depends on no other word."""
        depth, is_outside = self.words[at].depth, False
        for place in range(at - 1, 0, -1):
            word = self.words[place]
            is_outside |= self._begins_at_depth(place + 1, depth)
            if word.depth > depth or (is_outside and word.depth == depth):
                continue
            if word.depth < depth:  # the noun that a relative clause describes
                return place if word.part in (NOUN, PRONOUN) else None
            if word.part == BOUNDARY and not word.begins:
                return None
            if word.part in (NOUN, PRONOUN) and place not in self.governed:
                return place
        return None

    def _begins_at_depth(self, at: int, depth: int) -> bool:
        return self.words[at].begins and self.words[at].depth == depth

    def _comes_first(self, at: int) -> bool:
        """Whether the verb or predicate has nothing before it in its clause that could be its subject."""
        while at > 0 and self._part(at - 1) in (AUXILIARY, ADVERB, PARTICLE, PREDICATE):
            at -= 1
        return at > 0 and self._part(at - 1) == BOUNDARY

    def _subject_behind(self, at: int) -> int | None:
        """The subject after the auxiliary of a question: did the dog sleep, which book did you read."""
        noun = self._noun_after(at + 1)
        if noun is None or self._comes_first(at):
            return noun
        return noun if self._part(noun + 1) in (VERB, AUXILIARY) else None

    def read_clauses(self) -> None:
        done: list[tuple[bool, int, int]] = []  # agent and action; those of inner clauses come last
        said_of: dict[int, int] = {}  # depth → subject of the clause before: "sat down and slept"
        for at, word in enumerate(self.words):
            if word.text in STOPS:
                said_of.clear()
            if word.part not in (AUXILIARY, VERB, PASSIVE_VERB, PREDICATE):
                continue
            subject = self._subject(at)
            if word.part == AUXILIARY:
                behind = self._subject_behind(at)
                subject = subject if behind is None else behind
            elif word.part == PREDICATE and subject is None and self._part(at + 1) == AUXILIARY:
                subject = self._subject_behind(at + 1)  # how old is the king?
            if subject is None and self._comes_first(at):
                subject = said_of.get(word.depth)
            agent = None
            if word.part == AUXILIARY:
                self._add(at, "doer", subject, "auxiliary to subject")
            elif word.part == PREDICATE:
                self._add(at, "noun", subject, "predicate to noun")
            else:
                agent, patient = self._agent_and_patient(at, subject)
                self._add(at, "doer", agent, "verb to subject")
                self._add(at, "object", patient, "verb to object")
                if agent is not None and self._part(agent) in (NOUN, PRONOUN):
                    done.append((self.words[agent].depth != word.depth, agent, at))
                if patient is not None and self._part(patient) == NOUN:
                    self._add(patient, "object", at, "object to verb")
            if (about := agent if subject is None else subject) is not None:
                said_of[word.depth] = about
        for _, agent, verb in sorted(done):
            self._add(agent, "doer", verb, "subject to verb")

    def _agent_and_patient(self, at: int, subject: int | None) -> tuple[int | None, int | None]:
        before, depth, is_passive, to_do = at - 1, self.words[at].depth, False, False
        if self._part(at) == PASSIVE_VERB:
            return None, subject
        patient = self._owned_after(self._behind_receiver(at) + 1, depth)
        while before > 0 and self._part(before) in (AUXILIARY, ADVERB, PARTICLE):
            is_passive |= self.words[before].text in BE and not to_do
            to_do |= self.words[before].text == "to"  # was able to lift: no passive
            before -= 1
        if is_passive and not self.words[at].text.endswith("ing"):
            return self._after_by(at), subject
        for noun, marker in self.governed.items():
            before_it = noun < at and self.words[noun].depth == depth
            if before_it and BOUNDARY not in map(self._part, range(noun, at)):
                if self._part(marker) == AGENT_MARKER:
                    return noun, subject
                if self._part(marker) == OBJECT_MARKER:
                    patient = noun
        if self._part(at - 1) == AGENT_MARKER:
            return None, subject
        if (end := self._clause_before_noun(at)) is not None:  # 男孩 买 的 面包, 买 面包 的 男孩
            head = self._noun_after(end + 1, depth - 1)
            if subject is None or self.words[subject].depth < depth:
                return head, patient
            return subject, head if patient is None else patient
        if patient is None and depth and subject is not None and self.words[subject].depth == depth:
            patient = self._head(at)  # the bread that the man bought
        return subject, patient

    def _behind_receiver(self, at: int) -> int:
        """The position of who receives what the verb gives, or that of the verb: 送 给 朋友 礼物."""
        following = at + 1
        if following < len(self.words) and self.words[following].text == GIVEN_TO:
            receiver = self._owned_after(following + 1)
            return at if receiver is None else receiver
        return at

    def _head(self, at: int) -> int | None:
        """The noun that the clause in brackets describes."""
        depth, before = self.words[at].depth, at
        while self.words[before].depth >= depth:
            before -= 1
        return before if self._part(before) == NOUN and self._part(before + 1) == RELATIVE else None

    def _after_by(self, at: int) -> int | None:
        for place in range(at + 1, len(self.words)):
            if self._part(place) == BOUNDARY:
                return None
            if self.words[place].text == BY:
                return self._noun_after(place + 1)
        return None


def _in_context(words: Sequence[TaggedWord]) -> list[TaggedWord]:
    """The words, each with the part of speech that its neighbours imply.

    Adjectives before their noun are distinguished from predicates, ``to`` before a noun from ``to`` before a
    verb, ``has`` with an object from the auxiliary, and ``who`` in a question from ``the man who``.
    """

    def asks(at: int) -> bool:
        """Whether an auxiliary here is followed by its subject and a verb: how much bread do you want."""
        at += 1
        while at < len(words) and words[at].part in (DETERMINER, ADJECTIVE):
            at += 1
        return at + 1 < len(words) and words[at + 1].part in (VERB, AUXILIARY)

    words = list(words)
    for at in range(len(words) - 2, -1, -1):
        after = at + 1
        while after < len(words) - 1 and words[after].text == OF:
            after += 1
        word, following = words[at], words[after].part
        nominal = following in (NOUN, PRONOUN, ADJECTIVE, DETERMINER)
        if word.part == PREDICATE and following in (NOUN, ADJECTIVE):
            words[at] = word._replace(part=ADJECTIVE)
        elif word.text == "to" and nominal:
            words[at] = word._replace(part=PREPOSITION)
        elif (
            word.text in HAVE_OR_DO
            and words[at - 1].part in (NOUN, PRONOUN)
            and (following == BOUNDARY or (nominal and not asks(at)))
        ):
            words[at] = word._replace(part=VERB)
        elif word.part == RELATIVE and not word.depth:
            words[at] = word._replace(part=DETERMINER if nominal and following != PRONOUN else PRONOUN)
    return words
