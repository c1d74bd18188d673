"""Make the atlases that come with Headscope: ``python -m mha_core.training.workshop.atlases``.

For each of these models it measures made-up sentences of the model's language and keeps the summary. Run it
again after the models were trained again.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_core import resources
from mha_core.atlases.library import FOLDER
from mha_core.atlases.query import EXAMPLES, MANIFEST, STRINGS, SUMMARY
from mha_core.atlases.run import atlas
from mha_core.atlases.texts import SMALL

H, D_MODEL, COUNT = (4, 8), 64, 1000


def main() -> None:
    for texts, language in SMALL.items():
        for h in H:
            folder = resources.path(*FOLDER) / f"glass-box-{language}-h{h}-d{D_MODEL}"
            with TemporaryDirectory() as made:
                print(atlas(texts, count=COUNT, h=h, d_model=D_MODEL, out=made, workers=2))
                folder.mkdir(parents=True, exist_ok=True)
                for name in (MANIFEST, SUMMARY, EXAMPLES, STRINGS):
                    shutil.copy(Path(made) / name, folder / name)


if __name__ == "__main__":
    main()
