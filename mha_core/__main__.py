"""The command `headscope`: open the app, from a checkout or from an installed wheel."""

import os
import sys

from mha_core import resources


def main() -> None:
    """Become `streamlit run app.py`, with whatever options were given."""
    command = [sys.executable, "-m", "streamlit", "run", str(resources.path("app.py")), *sys.argv[1:]]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
