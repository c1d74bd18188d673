"""The answer of a model at a token: its most probable words, each with its probability."""

from collections.abc import Callable

from torch import Tensor

ANSWERS = 5  # words, the most probable first
MAX_WORDS = 100  # in an answer of a file
MAX_QUESTIONS = 100  # of a file
NOTHING = "[CLS]"  # the answer of a small model that the sentence has nothing that was asked for
# Probability of the best word. Below it, all other words together are more than twice as probable.
LEAST_GUESS = 0.3
SURE = 0.9  # the least probability of an answer that is stated without "perhaps"
Answer = tuple[tuple[str, float], ...]


def is_known(answer: Answer) -> bool:
    """Whether the best word has at least the probability `LEAST_GUESS`."""
    return answer[0][1] >= LEAST_GUESS


def most_probable(probabilities: Tensor, word: Callable[[int], str]) -> list[Answer]:
    """The most probable words of each row of probabilities (row, word); `word` names one by its id."""
    top = probabilities.topk(min(ANSWERS, probabilities.shape[-1]))
    rows = zip(top.values.tolist(), top.indices.tolist(), strict=True)
    return [tuple((word(i), p) for p, i in zip(*row, strict=True)) for row in rows]
