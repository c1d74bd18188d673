"""Where the files that come with the library lie: in a checkout, or inside an installed wheel."""

from pathlib import Path

OPENED = "HEADSCOPE_OPENED"  # of the environment: the saved trace that the app shows at first
PACKAGE = Path(__file__).resolve().parent


def path(*parts: str) -> Path:
    """A file or folder of the checkout, ``path("assets", "weights")``, wherever it was installed to."""
    carried = PACKAGE / "_app"
    return (carried if carried.exists() else PACKAGE.parent).joinpath(*parts)
