"""A queue of trainings shared by all users: each plan is trained once, and those who wait see their place."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from mha_core.errors import MhaError
from mha_core.training import checkpoints
from mha_core.training.checkpoints import Trained
from mha_core.training.evaluation import famous, scores, sentence_weights
from mha_core.training.fit import Plan, Run
from mha_core.training.language import MAX_WORDS
from mha_core.training.lexicon import lexicon
from mha_core.training.model import SmallModel

RECORDS = 40  # over a whole training
PAIRS = 8  # of each pattern, for the scores shown while it learns
MAX_WAITING = 40
MAX_FINISHED = 24


@dataclass(frozen=True, eq=False)
class Record:
    """Measurements of a training at one step; `weights` are those of the famous pair of sentences."""

    step: int
    loss: float | None  # mean since the record before
    answer: float  # share of held-out sentences that are answered right
    accuracy: float  # share in which the best head gives the right noun more weight
    right: float  # mean weight of that head on the right noun
    weights: tuple[np.ndarray, ...]  # for each sentence: (layer, head, query, key)


@dataclass(eq=False)
class Job:
    """One training and how far it is. Only the thread that trains it changes `run` and `records`."""

    plan: Plan
    state: Literal["waiting", "running", "stopped", "finished", "failed"] = "waiting"
    run: Run | None = None
    trained: Trained | None = None
    records: list[Record] = field(default_factory=list)
    users: set[str] = field(default_factory=set)  # who wait for it or watch it
    error: str = ""

    @property
    def name(self) -> str:
        return f"{checkpoints.name(self.plan)}-s{self.plan.seed}"

    @property
    def step(self) -> int:
        current = self.run or self.trained
        return current.step if current else 0


class Trainings:
    """A queue of trainings and the threads that run them.

    Starting a plan that is there already joins it. A training pauses when no user wants it any more,
    and resumes where it was when one does.
    """

    def __init__(self, workers: int = 1):
        self.workers = workers
        self._jobs: dict[Plan, Job] = {}
        self._opened: dict[str, Trained] = {}
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def start(self, plan: Plan, who: str) -> Job:
        """Start, resume or join the training of a plan for user `who`.

        Raises `MhaError` when too many are waiting.
        """
        with self._changed:
            job = self._jobs.get(plan)
            if job is None or job.state == "failed":
                job = Job(plan, state="stopped")
            if job.state == "stopped":
                if len(self._waiting) >= MAX_WAITING:
                    raise MhaError(
                        f"{len(self._waiting)} trainings are waiting already; come back in a few minutes, "
                        f"or look at one that has been trained."
                    )
                job.state = "waiting"
                self._jobs[plan] = job
                self._waiting.append(job)
                self._forget()
            job.users.add(who)
            self._work()
            self._changed.notify_all()
            return job

    def stop(self, plan: Plan, who: str) -> None:
        """User `who` no longer wants it; it pauses after its current step unless another user does."""
        with self._changed:
            job = self._jobs.get(plan)
            if job is None:
                return
            job.users.discard(who)
            if job.state == "waiting" and not job.users:
                self._waiting.remove(job)
                job.state = "stopped"

    def find(self, plan: Plan) -> Job | None:
        return self._jobs.get(plan)

    def place(self, job: Job) -> int:
        """How many trainings come before this one; 0 for the next and for one that is not waiting."""
        with self._changed:
            return self._waiting.index(job) if job in self._waiting else 0

    def finished(self) -> dict[str, Trained]:
        """Every model that is ready to be looked at, by name, the latest first."""
        with self._changed:
            done = {job.name: job.trained for job in self._jobs.values() if job.trained}
            return dict(reversed((self._opened | done).items()))

    def add(self, trained: Trained) -> str:
        """Take in a model from a file, and return the name that it goes by."""
        with self._changed:
            name = f"{checkpoints.name(trained.plan)}-s{trained.plan.seed}-{trained.step}"
            self._opened[name] = trained
            while len(self._opened) > MAX_FINISHED:
                self._opened.pop(next(iter(self._opened)))
            return name

    def close(self) -> None:
        """Stop all threads after their current step."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _forget(self) -> None:
        """Drop the oldest trainings that are over, so that memory stays bounded."""
        over = [plan for plan, job in self._jobs.items() if job.state in ("finished", "stopped", "failed")]
        for plan in over[: max(0, len(self._jobs) - MAX_FINISHED)]:
            del self._jobs[plan]

    def _work(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < self.workers:
            self._threads.append(threading.Thread(target=self._loop, name="training", daemon=True))
            self._threads[-1].start()

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
            except Exception as error:  # any error: the user sees it, the queue goes on
                job.error = f"{type(error).__name__}: {error}"
            with self._changed:
                self._leave(job)

    def _leave(self, job: Job) -> None:
        if job.error:
            job.state = "failed"
        elif job.run.finished:
            model = job.run.model.requires_grad_(False).eval()
            job.trained = Trained(model, job.plan, job.run.step, {"answer": job.records[-1].answer})
            job.state, job.run = "finished", None  # the optimizer and the sentences are not needed again
        elif job.users:  # a user came back while it was stopping
            job.state = "waiting"
            self._waiting.append(job)
        else:
            job.state = "stopped"

    def _train(self, job: Job) -> None:
        job.run = job.run or Run(job.plan)
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


def record(run: Run, loss: float | None) -> Record:
    """Measure a training at its current step."""
    language = run.plan.language
    measured = scores(run.model, language, count=PAIRS)
    return Record(
        run.step,
        loss,
        measured.answer,
        measured.accuracy,
        measured.right,
        famous_weights(run.model, language),
    )


def famous_weights(model: SmallModel, language: str) -> tuple[np.ndarray, ...]:
    """The weights of every head in both famous sentences: (layer, head, query, key) each, as copies."""
    pair = famous(language)
    sentences = zip(pair.ids, pair.lengths, strict=True)
    return tuple(np.stack(sentence_weights(model, ids[:length])) for ids, length in sentences)


def famous_labels(language: str) -> tuple[tuple[str, ...], ...]:
    """The tokens of both famous sentences, as labels."""
    words = lexicon(language)
    return tuple(words.cut(entry["text"], limit=MAX_WORDS)[0].labels for entry in words.grammar["famous"])
