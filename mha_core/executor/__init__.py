"""The same work on many tasks: in this process, in several processes, or on a Ray cluster.

A worker is a process that prepares once, by loading a model for instance, and then does one task after the
other. Ray needs the extra ``ray`` on every machine of the cluster.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from typing import TypeVar

from mha_core.errors import MhaError, Phrase, at_least_1
from mha_core.executor import actors, processes
from mha_core.executor.worker import Place, Worker, do, prepared

Task = TypeVar("Task")
Result = TypeVar("Result")

PREPARATION = -1  # instead of the number of a task
MAX_DEATHS = 3  # of workers over one task


def run(
    prepare: Callable[[], Callable[[Task], Result]],
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    ray: str | None = None,
    lost: Callable[[int], object] | None = None,
) -> Generator[tuple[int, Result], None, None]:
    """Do all tasks, and yield the number of each, from 0, with its result: what is done first comes first.

    `prepare` is called once in each worker and returns the function that does a task. One worker, the
    default, is a loop in this process. Several are processes, to which `prepare` and the tasks are pickled;
    torch has as many threads in each as there are processors for it. `ray` is "auto" for the cluster that
    this machine belongs to, "local" for one on this machine that ends with the work, or the address of a
    cluster; the default is a worker for each of its processors. If this process is connected to Ray, that
    connection is used.

    When a worker dies, `lost` is called with the number of its task, and another worker does it again. Raises
    what `prepare` or a task raises, and `MhaError` for a task over which three workers died. Closing the
    iterator stops the workers at once.
    """
    if workers is not None:
        at_least_1("workers", workers, Phrase("processes"))
    if ray is not None:
        actors.check(ray)
        return _spread(actors.place(ray, workers, len(tasks)), prepare, tasks, lost)
    if workers is None or workers == 1:
        return _loop(prepare, tasks)
    return _spread(processes.place(min(workers, len(tasks))), prepare, tasks, lost)


def _loop(prepare: Callable[[], Callable[[Task], Result]], tasks: Sequence[Task]) -> Generator:
    if tasks:
        function = prepare()
        for number, task in enumerate(tasks):
            yield number, function(task)


def _spread(
    place: AbstractContextManager[Place],
    prepare: Callable[[], Callable[[Task], Result]],
    tasks: Sequence[Task],
    lost: Callable[[int], object] | None,
) -> Generator[tuple[int, Result], None, None]:
    """The results of workers: those that died are replaced, and all are killed at the end."""
    if not tasks:
        return
    todo, left, deaths = deque(range(len(tasks))), len(tasks), Counter[int]()
    crew: list[Worker] = []
    idle: list[Worker] = []
    doing: dict[Future, tuple[Worker, int]] = {}  # who does which task; nobody has a second one waiting
    results: list[tuple[int, Result]] = []
    with place as (hire, size, threads):
        try:
            while True:
                while idle and todo:
                    worker, number = idle.pop(), todo.popleft()
                    doing[worker.submit(do, tasks[number])] = worker, number
                preparing = [number for _, number in doing.values() if number == PREPARATION]
                for _ in range(min(size - len(doing), len(todo) - len(preparing))):
                    crew.append(worker := hire(threads))
                    doing[worker.submit(prepared, prepare, threads)] = worker, PREPARATION
                yield from results  # everybody is busy meanwhile
                left -= len(results)
                results.clear()
                if not left:
                    return
                for future in wait(doing, return_when=FIRST_COMPLETED).done:
                    worker, number = doing.pop(future)
                    error = future.exception()
                    if error is None:
                        idle.append(worker)
                        if number == PREPARATION:
                            del deaths[PREPARATION]
                        else:
                            results.append((number, worker.result(future)))
                    elif failure := worker.failure(error):
                        raise failure
                    else:
                        crew.remove(worker)
                        worker.kill()
                        deaths[number] += 1
                        _check_deaths(number, deaths[number], size)
                        if number != PREPARATION:
                            todo.appendleft(number)
                            if lost:
                                lost(number)
        finally:
            for worker in crew:
                worker.kill()


def _check_deaths(number: int, times: int, size: int) -> None:
    if times < MAX_DEATHS:
        return
    raise MhaError(
        "{times} workers died before they could do a task. In a script, start them below "
        'if __name__ == "__main__":, as each of them imports the script. A worker also dies when it is '
        "killed or when its machine has no memory left; fewer workers leave more memory for each."
        if number == PREPARATION
        else "{times} workers died over task {number}, so it is not done again. A worker dies when it is "
        "killed or when its machine has no memory left; fewer workers leave more memory for each.",
        times=times,
        number=number,
        fixes=({"workers": size - 1},) if size > 1 else (),
    )
