"""`python -m tests.parity` goes on when a model takes its process along."""

import os

from tests.parity import __main__ as command
from tests.parity import rows, table


def prepare():
    def row(task):
        _, name = task
        if name == "deadly":
            os._exit(1)
        return table.Row(name, "text", "exact")

    return row


def test_a_family_over_which_processes_die_is_reported_and_the_others_are_compared(monkeypatch):
    monkeypatch.setattr(rows, "prepare", prepare)
    names = ["bert", "deadly", "gpt2", "t5"]
    done = dict(row for _, row in compared(names))
    assert {name: row.verdict for name, row in done.items()} == dict.fromkeys(names, "exact") | {
        "deadly": "not built"
    }
    assert done["deadly"].missing == "the process ended, or took too long"


def compared(names):
    for section, row in command.compared([("families", name) for name in names], 2, None):
        yield section, (row.family, row)
