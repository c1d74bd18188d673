"""Training reduces the loss, can be stopped anywhere and resumes to the same weights."""

import math
from statistics import fmean

import pytest
import torch

from mha_core.training.data import ASKED, GROUPS, Batches, SentenceBatch
from mha_core.training.fit import HIDDEN_SHARE, MIN_RATE, SHARES, WARM_UP, Plan, Training, rate_at
from mha_core.training.language import BARE
from mha_core.training.lexicon import lexicon
from mha_core.training.questions import HIDDEN_WORD
from mha_core.training.workshop import __main__ as command


def weights(run: Training) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def moments(run: Training) -> dict:
    return {
        (name, key): value.clone()
        for name, parameter in run.model.named_parameters()
        for key, value in run.optimizer.state[parameter].items()
    }


def equal_states(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Steps


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "language"), [("glass-box", "en"), ("standard", "zh")])
def test_the_loss_falls_and_every_parameter_learns(little, tiny, architecture, language):
    run = Training(tiny(architecture=architecture, language=language, steps=2000, rate=0.01))
    before = weights(run)
    first = run.advance(little)  # whole readings, as some batches are easier than others
    assert [name for name, tensor in weights(run).items() if torch.equal(tensor, before[name])] == []
    run.advance(14 * little)
    assert run.advance(little) < 0.9 * first
    assert run.step == 16 * little


def test_steps_in_any_portions_give_the_same_weights_and_mean_loss_whatever_else_is_drawn(little, tiny):
    torch.manual_seed(1)
    one, other, single = Training(tiny()), Training(tiny()), Training(tiny())
    losses = [single.advance(1) for _ in range(5)]
    assert one.advance(5) == pytest.approx(sum(losses) / 5, rel=1e-6)
    assert len({*losses}) == 5
    one.advance(18)
    torch.manual_seed(2)
    for portion in (1, 7, 0, 2, 11, 2):
        other.advance(portion)
    assert one.finished
    assert other.finished
    assert equal_states(weights(one), weights(other))


def test_bare_sentences_come_first(little, tiny):
    run = Training(tiny(bare=2, steps=5))
    bare, every = Batches("en", run.plan.seed, BARE), Batches("en", run.plan.seed)
    read = []
    run.loss = lambda batch: read.append(batch) or Training.loss(run, batch)
    run.advance(4)
    assert [
        torch.equal(batch.ids, stream[n].ids)
        for n, (batch, stream) in enumerate(zip(read, [bare, bare, every, every], strict=True))
    ] == [True] * 4
    assert not torch.equal(bare[0].ids, every[0].ids)


def test_a_finished_run_takes_no_steps(little, tiny):
    run = Training(tiny(steps=5))
    assert not run.finished
    run.advance(1000)
    before = weights(run), moments(run)
    assert run.advance(3) == 0.0
    assert (run.step, run.finished) == (5, True)
    assert equal_states(weights(run), before[0])
    assert equal_states(moments(run), before[1])


# Stopping and going on


@pytest.mark.parametrize(("stop", "architecture"), [(9, "standard"), (28, "glass-box")])
def test_a_saved_training_resumes_exactly(little, tiny, tmp_path, stop, architecture):
    """9 steps end inside a reading, 28 at the end of all readings of a chunk."""
    plan = tiny(architecture=architecture, steps=41, bare=5)
    straight, stopped = Training(plan), Training(plan)
    straight.advance(41)
    stopped.advance(stop)
    command.save_run(tmp_path / "run", stopped)
    resumed = command.load_run(tmp_path / "run")
    assert (resumed.step, resumed.plan) == (stop, plan)
    for run in (resumed, stopped):  # saving has changed nothing in the one that was saved
        run.advance(41)
        assert equal_states(weights(run), weights(straight))
        assert equal_states(moments(run), moments(straight))


# The loss


NAMES = list(GROUPS)
# Sentence, position, question, group of links and the word that is right, of two sentences of 5 and 4 words.
ROWS = (
    (0, 2, "noun", "pronoun", 6),
    (0, 3, "noun", "describes", 6),
    (1, 2, "noun", "describes", 9),
    (1, 3, "noun", "describes", 9),
    (0, 1, "object", "object", 7),
    (1, 1, "doer", "nothing", 1),
    (1, 3, "after", "after", 1),
    (0, 4, "after", "after", 7),
    (0, 2, "before", "before", 5),
)
GUESSES = ((0, 3, HIDDEN_WORD, None, 200), (1, 2, HIDDEN_WORD, None, 10), (1, 1, HIDDEN_WORD, None, 3000))
SHIFT = 3


def batch(rows) -> SentenceBatch:
    ids = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 10, 11, 0]])
    candidates = ids.unique()
    sentence, position, question, group, word = zip(*rows, strict=True)
    answers = [
        w if q == HIDDEN_WORD else candidates.tolist().index(w) for q, w in zip(question, word, strict=True)
    ]
    return SentenceBatch(
        ids,
        ids != 0,
        SHIFT,
        torch.tensor(sentence),
        torch.tensor(position),
        torch.tensor([ASKED.index(name) for name in question]),
        torch.tensor([NAMES.index(name) if name else len(NAMES) for name in group]),
        torch.tensor(answers),
        candidates,
    )


def loss_by_hand(run: Training, rows) -> float:
    """The loss of these rows, one sentence and one row after the other."""
    whole, by_group = batch(rows), {}
    for i, at, question, group, word in rows:
        if question not in run.model.questions:
            continue
        length = int(whole.padding[i].sum())
        read = run.model.read(run.model(whole.ids[i : i + 1, :length], shift=SHIFT), question)[0, at]
        scores = run.model.logits(read)
        if group:
            scores = scores[whole.candidates]
            word = whole.candidates.tolist().index(word)
        else:
            scores = scores[: run.n_known]
        by_group.setdefault(group, []).append(-scores.log_softmax(-1)[word].item())
    shares = {group: float(SHARES[NAMES.index(group)]) for group in by_group if group}
    total = sum(shares[group] / sum(shares.values()) * fmean(by_group[group]) for group in shares)
    return total + (HIDDEN_SHARE * fmean(by_group[None]) if None in by_group else 0.0)


@pytest.mark.parametrize(("h", "architecture"), [(2, "standard"), (4, "glass-box")])
def test_each_group_of_links_has_its_share_of_the_loss_and_hidden_words_theirs(tiny, h, architecture):
    """Groups that are missing, or whose questions the model lacks, leave their shares to the others."""
    run = Training(tiny(h=h, d_model=16, architecture=architecture))
    for rows in (ROWS + GUESSES, ROWS[1:2], ROWS[:2], ROWS[4:], ROWS[:1] + GUESSES, GUESSES):
        assert run.loss(batch(rows)).item() == pytest.approx(loss_by_hand(run, rows), rel=1e-5)
    of_after = run.loss(batch(ROWS[6:8])).item()
    assert of_after == 0.0 if h == 4 else of_after > 1.0
    assert lexicon().vocabulary[run.n_known :] == lexicon().spares


# The rate


@pytest.mark.parametrize("steps", [1, 7, 50, 51, 97, 1600])
def test_the_rate_rises_in_a_line_and_falls_as_half_a_cosine(steps):
    rates = [rate_at(step, steps) for step in range(steps)]
    assert rates[:WARM_UP] == [(step + 1) / WARM_UP for step in range(min(steps, WARM_UP))]
    if steps > WARM_UP:
        assert rates[WARM_UP] == 1.0
        for share, height in ((0.25, (1 + math.sqrt(0.5)) / 2), (0.5, 0.5), (1, 0)):
            step = WARM_UP + share * (steps - WARM_UP)
            assert rate_at(step, steps) == pytest.approx(MIN_RATE + (1 - MIN_RATE) * height)


def test_the_optimizer_takes_the_rate_of_the_step(little, tiny):
    run = Training(tiny(rate=0.5))
    run.advance(4)
    assert [group["lr"] for group in run.optimizer.param_groups] == [0.5 * 4 / WARM_UP]


# Plans


def test_the_rate_falls_with_the_width_unless_it_is_given():
    assert Plan().rate == 0.004
    assert Plan(d_model=256).rate == pytest.approx(0.004 * 0.25**0.7)
    assert Plan(d_model=256, rate=0.01).rate == 0.01


BAD = (
    *({"architecture": "recurrent"}, {"h": 3}, {"h": 0}, {"language": "tlh"}, {"steps": 0}, {"steps": 10**9}),
    *({"seed": -1}, {"bare": -1}, {"d_model": 0, "h": 1}),
    *({"rate": rate} for rate in (0.0, -1.0, math.inf, math.nan)),
)


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_an_invalid_plan_is_refused_with_valid_ones(settings, refused):
    error = refused(Plan, **settings)
    assert error.fixes
    for fix in error.fixes:
        fix = {"language" if name == "small language" else name: value for name, value in fix.items()}
        Plan(**{**settings, **fix})


@pytest.mark.parametrize(
    "settings", [{"steps": 1.5}, {"bare": 1.5}, {"seed": "0"}, {"h": True}, {"d_model": None}], ids=str
)
def test_a_plan_with_values_of_wrong_types_is_refused(settings, refused):
    assert "must be a whole number" in str(refused(Plan, **settings))
