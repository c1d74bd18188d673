"""What a worker of the sweep does: compute one row after the other.

Not in `__main__`, which other processes do not import.
"""

import faulthandler
import gc
import traceback
import warnings
from collections.abc import Callable

from tests.parity import table

LIMIT = 200  # seconds that a row may take


def prepare() -> Callable[[tuple[str, str]], object]:
    """What computes a row in this process, which ends itself if that takes too long."""
    warnings.filterwarnings("ignore")  # those of other people's models
    import torch
    import transformers

    from tests.parity import compare

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    ways: dict[str, Callable] = {"families": compare.compare, "long": compare.compare_long}

    def row(task: tuple[str, str]) -> object:
        section, name = task
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            return ways[section](name)
        except Exception as error:
            traceback.print_exc()
            reason = f"the comparison failed with {type(error).__name__}"
            return table.Row(name, "", "not built", missing=reason) if section == "families" else None
        finally:
            faulthandler.cancel_dump_traceback_later()
            gc.collect()  # models refer to themselves

    return row
