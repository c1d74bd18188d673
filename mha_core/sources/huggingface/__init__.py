"""Hugging Face models as sources: their files, loading, the trial, and tracing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel as PreTrainedModel
else:  # transformers may be missing, and takes seconds to load
    PreTrainedModel = Any
