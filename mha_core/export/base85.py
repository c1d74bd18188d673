"""Bytes as letters that mean nothing in HTML: five for four, where base64 takes four for three."""

import numpy as np

# Those of `base64.b85encode`, with others for < > & and _: no tag can open, no entity begin, and no letters
# look like a placeholder of ours.
LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%[()*+-;,=.?@^]`{|}~"  # 85


def encoded(data: bytes) -> str:
    """Each four bytes as a number of five digits to the base 85, the largest first.

    Of n < 4 bytes at the end n + 1 digits are kept. The standard library's own does it byte by byte, which
    takes as long as all else of a page. `assets/components/base85.js` reads it.
    """
    missing = -len(data) % 4
    words = np.frombuffer(data + b"\0" * missing, ">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), np.uint8)
    for place in range(4, -1, -1):
        words, digits[:, place] = np.divmod(words, np.uint32(85))
    letters = np.frombuffer(LETTERS, np.uint8)[digits].tobytes()
    return letters[: len(letters) - missing].decode("ascii")
