"""A queue of trainings shared by all users: each plan is trained once, and those who wait see their place."""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mha_core.cache import Cache, size
from mha_core.errors import MhaError, listed
from mha_core.traces.tokens import Tokens
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained, untrained
from mha_core.training.evaluation import famous, scores, sentence_weights, stages
from mha_core.training.fit import Plan, Training
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel
from mha_core.training.runs import Runs, title

LOG = logging.getLogger("headscope")
RECORDS = 40  # over a whole training
PAIRS = 8  # of each pattern, for the scores shown while it learns
MAX_WAITING, MAX_WAITING_OF_USER = 40, 2
SECRET = 16  # random bytes in the name of a model from a file
# Of the trainings that are finished, of which the widest has 280 MB with all steps, and of the others.
MAX_BYTES, MAX_UNFINISHED_BYTES = 300_000_000, 100_000_000
MAX_READ_BYTES = 120_000_000  # of the models that were read from files


@dataclass(frozen=True, eq=False)
class Record:
    """A training at one step: its measurements, and its parameters, empty where they were forgotten.

    `weights` are those of the famous pair of sentences.
    """

    step: int
    loss: float | None  # mean since the record before
    answer: float  # share of held-out sentences that are answered right
    accuracy: float  # share in which the best head gives the right noun more weight
    right: float  # mean weight of that head on the right noun
    stages: Mapping[str, float]  # shares of right answers, by `evaluation.STAGES`
    weights: tuple[np.ndarray, ...]  # for each sentence: (layer, head, query, key)
    parameters: Mapping[str, Tensor]


@dataclass(eq=False)
class Job:
    """One training and how far it is. While it runs only its thread changes `run` and `records`."""

    plan: Plan
    state: Literal["waiting", "running", "stopped", "finished", "failed"] = "waiting"
    run: Training | None = None
    trained: Trained | None = None
    records: list[Record] = field(default_factory=list)
    users: set[str] = field(default_factory=set)  # who wait for it or watch it
    error: str = ""
    unsaved: str = ""  # why it is lost when the server ends

    @property
    def name(self) -> str:
        return f"{checkpoints.name(self.plan)}-s{self.plan.seed}"

    @property
    def step(self) -> int:
        current = self.run or self.trained
        return current.step if current else 0

    @property
    def bytes(self) -> int:
        return size([self.run, self.trained, self.records])

    @property
    def steps(self) -> list[int]:
        """The steps at which the model of a finished training can be looked at; the last is its end."""
        return [record.step for record in self.records if record.parameters or record.step == self.step]

    def at(self, step: int | None) -> Trained:
        """The model of a finished training at one of its `steps`, or at the last where that is None.

        Raises `MhaError` for another step.
        """
        if step in (None, self.step):
            return self.trained
        if step not in self.steps:
            raise _no_step(self.name, step, self.steps)
        record = next(record for record in self.records if record.step == step)
        model = untrained(self.plan).model
        model.load_state_dict(record.parameters)
        return Trained(model, self.plan, step, {"answer": record.answer})


class Trainings:
    """A queue of trainings and the thread that runs them, one after the other.

    Starting a plan that is there already joins it. A training pauses when no user wants it any more,
    and resumes where it was when one does. With `runs` a finished model is saved at its last step, and one
    that is saved there can be looked at like one that was trained here. `opened` has those that visitors
    opened from files of theirs, apart, so that they can push no finished one out.
    """

    def __init__(
        self,
        *,
        runs: Runs | None = None,
        opened: Runs | None = None,
        max_waiting: int = MAX_WAITING,
        max_waiting_of_user: int = MAX_WAITING_OF_USER,
    ):
        self.max_waiting, self.max_waiting_of_user = max_waiting, max_waiting_of_user
        self.runs, self.opened = runs, opened
        self._jobs: dict[Plan, Job] = {}
        self._read: Cache[Trained] = Cache(MAX_READ_BYTES)
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, plan: Plan, who: str) -> Job:
        """Start, resume or join the training of a plan for user `who`.

        Raises `MhaError` when too many are waiting, of this user or of all.
        """
        with self._changed:
            job = self._jobs.get(plan)
            if job is None or job.state == "failed":
                job = Job(plan, state="stopped")
            if job.state == "stopped":
                of_user = [waiting for waiting in self._waiting if who in waiting.users]
                if len(of_user) >= self.max_waiting_of_user:
                    raise _too_many([waiting.plan for waiting in of_user], self.max_waiting_of_user)
                if len(self._waiting) >= self.max_waiting:
                    raise MhaError(
                        "{n} trainings are waiting already; come back in a few minutes, "
                        "or look at one that has been trained.",
                        n=len(self._waiting),
                    )
                job.state = "waiting"
                self._jobs.pop(plan, None)
                self._jobs[plan] = job  # the latest
                self._waiting.append(job)
                self._forget()
            job.users.add(who)
            self.work()
            self._changed.notify_all()
            return job

    def stop(self, plan: Plan, who: str) -> None:
        """User `who` no longer wants it; it pauses after its current step unless another user does."""
        with self._changed:
            job = self._jobs.get(plan)
            if job is not None:
                self._let_go(job, who)

    def leave(self, who: str) -> None:
        """User `who` has gone, and wants none of them any longer: the places in the queue are free."""
        with self._changed:
            for job in list(self._jobs.values()):
                self._let_go(job, who)

    def _let_go(self, job: Job, who: str) -> None:
        job.users.discard(who)
        if job.state == "waiting" and not job.users:
            self._waiting.remove(job)
            job.state = "stopped"
            if job.run is None:  # nothing to go on with: who starts and stops all day leaves nothing behind
                del self._jobs[job.plan]

    def find(self, plan: Plan) -> Job | None:
        return self._jobs.get(plan)

    def place(self, job: Job) -> int:
        """How many trainings come before this one; 0 for the next and for one that is not waiting."""
        with self._changed:
            return self._waiting.index(job) if job in self._waiting else 0

    def steps(self, name: str) -> list[int]:
        """The steps at which the model of that name can be looked at; empty where there is none."""
        with self._changed:
            job = self._finished_job(name)
            if job is not None:
                return job.steps
        try:
            return [self._from_file(name).step]
        except MhaError:  # it is said where it is looked at
            return []

    def model(self, name: str | None, step: int | None = None) -> Trained:
        """The model of that name at a step of its training, or at the last.

        Raises `MhaError` where there is none, and where its file is refused.
        """
        for folder in self._folders() if name else ():
            folder.look_at(name)
        with self._changed:
            job = self._finished_job(name)
            if job is not None:
                return job.at(step)
        trained = self._from_file(name)
        if step not in (None, trained.step):
            raise _no_step(name, step, [trained.step])
        return trained

    def _finished_job(self, name: str | None) -> Job | None:
        return next((job for job in self._jobs.values() if job.name == name and job.trained), None)

    def add(self, trained: Trained) -> str:
        """Take in a model from a file, and return the name that it goes by, which nobody can guess.

        Raises `MhaError` where it cannot be saved in the folder `opened`.
        """
        name = f"{title(trained)}-{secrets.token_urlsafe(SECRET)}"
        if self.opened is not None:
            self.opened.save(name, trained)
        self._read.get(name, lambda _name: trained)
        return name

    def _folders(self) -> list[Runs]:
        return [folder for folder in (self.runs, self.opened) if folder is not None]

    def _from_file(self, name: str | None) -> Trained:
        """A model, which is read once. Raises `MhaError` where there is none, and for a refused file."""

        def read(_name: str) -> Trained:
            models = (folder.load(name) for folder in self._folders() if name)
            trained = next(filter(None, models), None)
            if trained is None:
                raise MhaError(
                    "No model here is called {name!r} (any more); the page Train can train it again."
                    if name
                    else "None of the models that were trained here is chosen; the page Train trains one.",
                    name=name,
                    fixes=({"source": "mini"},),
                )
            return trained

        return self._read.get(name, read)

    def close(self) -> None:
        """Stop the thread after its current step."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _forget(self) -> None:
        """Drop the oldest of what trainings keep, so that memory stays bounded; none that waits or runs.

        First go the steps of the older ones, then they go themselves. Those that are not finished push no
        finished one out.
        """
        limits = {("finished",): MAX_BYTES, ("stopped", "failed", "waiting"): MAX_UNFINISHED_BYTES}
        for states, limit in limits.items():
            total = 0
            for plan, job in reversed(list(self._jobs.items())):  # the latest first
                if job.state not in states:
                    continue
                if total + job.bytes > limit:
                    job.records = [replace(record, parameters={}) for record in job.records]
                total += job.bytes
                if total > limit and job.state != "waiting":
                    del self._jobs[plan]

    def work(self) -> None:
        """Begin with what waits, unless a training is under way."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._loop, name="training", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        torch.set_num_threads(1)  # so small products only wait for each other on several cores
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.state = "running"
            try:
                self._train(job)
                if job.run.finished:
                    self._finish(job)
            except Exception as error:  # any error: the user sees it, the queue goes on
                job.error = f"{type(error).__name__}: {error}"
                LOG.error("training failed", exc_info=error, extra={"facts": {"id": job.name}})
            with self._changed:
                self._leave(job)

    def _leave(self, job: Job) -> None:
        if job.run is not None:
            job.run.optimizer.zero_grad()  # gradients are computed anew
        if job.error:
            job.state = "failed"
        elif job.trained:
            job.run, job.state = None, "finished"  # the optimizer and the sentences are not needed again
        elif job.users:  # a user came back while it was stopping
            job.state = "waiting"
            self._waiting.append(job)
        else:
            job.state = "stopped"
        self._forget()

    def _finish(self, job: Job) -> None:
        model = job.run.model.requires_grad_(False).eval()
        trained = Trained(model, job.plan, job.run.step, {"answer": job.records[-1].answer})
        try:
            if self.runs is not None:
                self.runs.save(job.name, trained)
        except MhaError as error:
            job.unsaved = error.phrase
        job.trained = trained

    def _train(self, job: Job) -> None:
        job.run = job.run or Training(job.plan)
        if not job.records:
            job.records.append(record(job.run, None))
        every = max(1, job.plan.steps // RECORDS)
        while not job.run.finished:
            loss, n_steps, until = 0.0, 0, (job.run.step // every + 1) * every
            while job.run.step < until and not job.run.finished:
                if self._closed or not job.users:
                    return
                loss += job.run.advance(1)
                n_steps += 1
            job.records.append(record(job.run, loss / n_steps))


def _too_many(plans: list[Plan], most: int) -> MhaError:
    """The error for a user with too many waiting trainings; its fixes lead to those, to stop one of them."""
    settings = ("h", "d_model", "architecture", "language", "seed")
    fixes = tuple({name: getattr(plan, name) for name in settings} for plan in plans)
    return MhaError(
        "{names} waits for you already; stop it, or come back when it has begun. For one visitor at most "
        "{limit} may wait."
        if len(plans) == 1
        else "{names} wait for you already; stop one of them, or come back when one has begun. For one "
        "visitor at most {limit} may wait.",
        names=listed([Job(plan).name for plan in plans], "and"),
        limit=most,
        fixes=fixes,
    )


def _no_step(name: str, step: int, steps: list[int]) -> MhaError:
    near = sorted(sorted(steps, key=lambda other: abs(other - step))[:2])
    return MhaError(
        "{name} has no step {step:,} that can be looked at (any more); {near} can.",
        name=name,
        step=step,
        near=listed(near, "or"),
        fixes=tuple({"step": other} for other in near),
    )


def record(run: Training, loss: float | None) -> Record:
    """Measure a training at its current step."""
    language = run.plan.language
    measured = scores(run.model, language, count=PAIRS)
    return Record(
        run.step,
        loss,
        measured.answer,
        measured.accuracy,
        measured.right,
        stages(run.model, language),
        famous_weights(run.model, language),
        {name: tensor.clone() for name, tensor in run.model.state_dict().items()},
    )


def famous_weights(model: SmallModel, language: str) -> tuple[np.ndarray, ...]:
    """The weights of every head in both famous sentences: (layer, head, query, key) each, as copies."""
    pair = famous(language)
    sentences = zip(pair.ids, pair.lengths, strict=True)
    return tuple(np.stack(sentence_weights(model, ids[:length])) for ids, length in sentences)


def famous_tokens(language: str) -> tuple[Tokens, ...]:
    """The tokens of both famous sentences."""
    words = lexicon(language)
    return tuple(words.cut(entry["text"], limit=MAX_WORDS)[0] for entry in words.grammar["famous"])
