"""The settings that each source of a scene has."""

# Besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run", "step"),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
STARTED = ("mini", "run")  # sources whose sentences begin with [CLS]
OF_THE_APP = ("run", "file")  # what the app alone has: a model that it trained, a file that it opened
