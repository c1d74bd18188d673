"""The command `headscope`: open the app, from a checkout or from an installed wheel."""

import os
import sys
from pathlib import Path


def app_file() -> Path:
    """The app beside this package in a checkout, or the one that a wheel carries inside it."""
    package = Path(__file__).resolve().parent
    carried = package / "_app" / "app.py"
    return carried if carried.exists() else package.parent / "app.py"


def main() -> None:
    """Become `streamlit run app.py`, with whatever options were given."""
    command = [sys.executable, "-m", "streamlit", "run", str(app_file()), *sys.argv[1:]]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
