"""A queue of trainings shared by all users: each plan is trained once, and waiting users see their place."""

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
from mha_core.training.checkpoints import Trained, untrained
from mha_core.training.evaluation import famous, scores, sentence_weights, stages
from mha_core.training.fit import Plan, Training
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.runs import Runs, title

LOG = logging.getLogger("headscope")
RECORDS = 40  # during a whole training
PAIRS = 8  # of each pattern, for the scores during training
SECRET = 16  # random bytes in the name of a model from a file
# Of finished trainings (the widest has 280 MB with all steps), and of all others.
MAX_BYTES, MAX_UNFINISHED_BYTES = 300_000_000, 100_000_000
MAX_READ_BYTES = 120_000_000  # of models read from files


@dataclass(frozen=True, eq=False)
class Record:
    """A training at one step: its measurements, and its parameters, empty once they were dropped.

    `weights` are those of the famous pair of sentences.
    """

    step: int
    loss: float | None  # mean since the record before
    answer: float  # share of held-out sentences with a right answer
    accuracy: float  # share in which the best head gives the right noun more weight
    right: float  # mean weight of that head on the right noun
    stages: Mapping[str, float]  # shares of right answers, by `evaluation.STAGES`
    weights: tuple[np.ndarray, ...]  # for each sentence: (layer, head, query, key)
    parameters: Mapping[str, Tensor]


@dataclass(eq=False)
class Job:
    """One training and its progress. While it runs only its thread changes `run` and `records`."""

    plan: Plan
    state: Literal["waiting", "running", "stopped", "finished", "failed"] = "waiting"
    run: Training | None = None
    trained: Trained | None = None
    records: list[Record] = field(default_factory=list)
    users: set[str] = field(default_factory=set)  # users who wait for it or watch it
    error: str = ""
    unsaved: str = ""  # why its model could not be saved

    @property
    def name(self) -> str:
        return title(self.plan)

    @property
    def step(self) -> int:
        current = self.run or self.trained
        return current.step if current else 0

    @property
    def bytes(self) -> int:
        return size([self.run, self.trained, self.records])

    @property
    def steps(self) -> list[int]:
        """The steps at which a finished training has a model; the last one is its end."""
        return [record.step for record in self.records if record.parameters or record.step == self.step]

    def at(self, step: int | None) -> Trained:
        """The model of a finished training at one of its `steps`, by default the last.

        Raises `MhaError` for another step.
        """
        step = self.step if step is None else step
        if step == self.step and self.trained is not None:
            return self.trained
        if step not in self.steps:
            raise _no_step(self.name, step, self.steps)
        record = next(record for record in self.records if record.step == step)
        model = untrained(self.plan).model
        model.load_state_dict(record.parameters)
        return Trained(model, self.plan, step, {"answer": record.answer})


class Trainings:
    """A queue of trainings and the thread that runs them, one after the other.

    Starting a plan that is queued already joins it. A training pauses when no user wants it any more, and
    resumes when one does. `runs` is the folder where finished models are saved at their last step, and read
    again. `opened` is the folder for models from visitors' files, kept apart so that they never push out a
    finished training.
    """

    def __init__(self, runs: Runs, opened: Runs, *, max_waiting: int, max_waiting_of_user: int):
        self.max_waiting, self.max_waiting_of_user = max_waiting, max_waiting_of_user
        self.runs, self.opened = runs, opened
        self._jobs: dict[Plan, Job] = {}
        self._read: Cache[Trained] = Cache(MAX_READ_BYTES)
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, plan: Plan, user: str) -> Job:
        """Start, resume or join the training of a plan for a user.

        Raises `MhaError` when too many are waiting, of this user or of all.
        """
        with self._changed:
            job = self._jobs.get(plan)
            if job is None or job.state == "failed":
                job = Job(plan, state="stopped")
            if job.state == "stopped":
                of_user = [waiting for waiting in self._waiting if user in waiting.users]
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
            job.users.add(user)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="training", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return job

    def stop(self, plan: Plan, user: str) -> None:
        """The user no longer wants the training; it pauses after its step unless another user does."""
        with self._changed:
            job = self._jobs.get(plan)
            if job is not None:
                self._remove_user(job, user)

    def leave(self, user: str) -> None:
        """The user has left and no longer wants any training; the places in the queue become free."""
        with self._changed:
            for job in list(self._jobs.values()):
                self._remove_user(job, user)

    def _remove_user(self, job: Job, user: str) -> None:
        job.users.discard(user)
        if job.state == "waiting" and not job.users:
            self._waiting.remove(job)
            job.state = "stopped"
            if job.run is None:  # not started: starting and stopping again and again leaves nothing behind
                del self._jobs[job.plan]

    def find(self, plan: Plan) -> Job | None:
        return self._jobs.get(plan)

    def place(self, job: Job) -> int:
        """The number of trainings ahead of this one; 0 for the next one and for one that is not waiting."""
        with self._changed:
            return self._waiting.index(job) if job in self._waiting else 0

    def steps(self, name: str) -> list[int]:
        """The steps at which the model of that name is available; empty if there is none."""
        with self._changed:
            job = self._finished_job(name)
            if job is not None:
                return job.steps
        try:
            return [self._from_file(name).step]
        except MhaError:  # the page that shows the model reports it
            return []

    def model(self, name: str | None, step: int | None = None) -> Trained:
        """The model of that name at a step of its training, or at the last.

        Raises `MhaError` if there is none, and if its file is refused.
        """
        for folder in (self.runs, self.opened):
            folder.touch(name or "")
        with self._changed:
            job = self._finished_job(name)
            if job is not None:
                return job.at(step)
        trained = self._from_file(name)
        if step is not None and step != trained.step:
            raise _no_step(name, step, [trained.step])
        return trained

    def _finished_job(self, name: str | None) -> Job | None:
        return next((job for job in self._jobs.values() if job.name == name and job.trained), None)

    def add(self, trained: Trained) -> str:
        """Add a model from a file, and return its new name, which nobody can guess.

        Raises `MhaError` if it cannot be saved in the folder `opened`.
        """
        name = f"{title(trained.plan)}-{secrets.token_urlsafe(SECRET)}"
        self.opened.save(name, trained)
        self._read.get(name, lambda _name: trained)
        return name

    def _from_file(self, name: str | None) -> Trained:
        """A model from a file, read once. Raises `MhaError` if there is none, and for a refused file."""

        def read(_name: str | None) -> Trained:
            trained = self.runs.load(name or "") or self.opened.load(name or "")
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
        """Drop the oldest results of trainings, so that memory stays bounded; never those that wait or run.

        The steps of older ones are dropped first, then the trainings themselves. Unfinished ones never push
        out a finished one.
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

    def _loop(self) -> None:
        torch.set_num_threads(1)  # products this small are slower on several cores
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._waiting.popleft()
                job.state = "running"
            try:
                self._train(job)
            except Exception as error:  # any error: the user sees it, the queue goes on
                job.error = f"{type(error).__name__}: {error}"
                LOG.error("training failed", exc_info=error, extra={"facts": {"id": job.name}})
            with self._changed:
                self._settle(job)

    def _settle(self, job: Job) -> None:
        if job.run is not None:
            job.run.optimizer.zero_grad()  # gradients are computed again
        if job.error:
            job.state = "failed"
        elif job.trained:
            job.run, job.state = None, "finished"  # the optimizer and the sentences are no longer needed
        elif job.users:  # a user came back while it was stopping
            job.state = "waiting"
            self._waiting.append(job)
        else:
            job.state = "stopped"
        self._forget()

    def _train(self, job: Job) -> None:
        """Train to the end of the plan, unless nobody wants it any more."""
        run = job.run = job.run or Training(job.plan)
        if not job.records:
            job.records.append(record(run, None))
        every = max(1, job.plan.steps // RECORDS)
        while not run.finished:
            loss, n_steps, until = 0.0, 0, (run.step // every + 1) * every
            while run.step < until and not run.finished:
                if self._closed or not job.users:
                    return
                loss += run.advance(1)
                n_steps += 1
            job.records.append(record(run, loss / n_steps))
        model = run.model.requires_grad_(False).eval()
        trained = Trained(model, job.plan, run.step, {"answer": job.records[-1].answer})
        try:
            self.runs.save(job.name, trained)
        except MhaError as error:
            job.unsaved = error.phrase
        job.trained = trained


def _too_many(plans: list[Plan], most: int) -> MhaError:
    """The error for a user with too many waiting trainings; its fixes are their plans, to stop one."""
    settings = ("h", "d_model", "architecture", "language", "seed")
    fixes = tuple({name: getattr(plan, name) for name in settings} for plan in plans)
    return MhaError(
        "{names} waits for you already; stop it, or come back when it has begun. For one visitor at most "
        "{limit} may wait."
        if len(plans) == 1
        else "{names} wait for you already; stop one of them, or come back when one has begun. For one "
        "visitor at most {limit} may wait.",
        names=listed(map(title, plans), "and"),
        limit=most,
        fixes=fixes,
    )


def _no_step(name: str | None, step: int, steps: list[int]) -> MhaError:
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
    measured, pair = scores(run.model, language, count=PAIRS), famous(language)
    sentences = (ids[:length] for ids, length in zip(pair.ids, pair.lengths, strict=True))
    return Record(
        run.step,
        loss,
        measured.answer,
        measured.accuracy,
        measured.right,
        stages(run.model, language),
        tuple(np.stack(sentence_weights(run.model, ids)) for ids in sentences),
        {name: tensor.clone() for name, tensor in run.model.state_dict().items()},
    )


def famous_tokens(language: str) -> tuple[Tokens, ...]:
    """The tokens of both famous sentences."""
    words = lexicon(language)
    return tuple(words.cut(entry["text"], limit=MAX_WORDS)[0] for entry in words.grammar["famous"])
