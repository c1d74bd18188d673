"""The settings that each source of a scene has."""

# Besides the text.
SETTINGS = {
    "mini": ("h", "d_model", "architecture"),
    "random": ("h", "d_model", "seed", "layers", "d_k", "d_v", "n_kv_heads", "position", "mask", "bias"),
    "run": ("run", "step"),
    "file": ("file", "kind"),
    "model": ("model", "revision", "dtype", "target", "kind"),
}
WITH_CLS = ("mini", "run")  # sources whose sentences begin with [CLS]
APP_ONLY = ("run", "file")  # sources that exist only in the app that trained the model or opened the file
