def run(prepare, tasks, *, workers=1, ray=None, lost=None):
    measure = prepare()
    for i in range(len(tasks)):
        yield i, measure(tasks[i])
