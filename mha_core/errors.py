"""The one error that a person can cause."""


class MhaError(ValueError):
    """A request that cannot be met, told so that the reader knows what to do next.

    The message says what was asked, the rule, and the nearest values that work.
    `fixes` holds those values again for programs: each entry maps parameter names to
    values that would have been accepted, for example ``({"d_model": 28}, {"d_model": 32})``.
    """

    def __init__(self, message: str, *, fixes: tuple[dict, ...] = ()):
        super().__init__(message)
        self.fixes = fixes
