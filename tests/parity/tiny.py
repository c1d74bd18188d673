"""A tiny model with random weights of every architecture of texts that the installed transformers has.

One table of small sizes serves nearly all; what a family needs besides stands in `OWN`, with the reason.
Sizes differ wherever they may, so that nothing is right by accident: 11 tokens and 7 of the target,
6 heads over 3 of keys and values, 4 heads in decoders, 2 layers of an encoder and 3 of a decoder.
"""

import importlib
import inspect
import re
from collections.abc import Mapping

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.parity.own import OWN

N_TEXT, N_TARGET = 11, 7
VOCABULARY = 97
# Which families there are, by the kind of their models. Each is built once, as the first kind that it has.
KINDS = {
    "seq2seq": (
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        transformers.AutoModelForSeq2SeqLM,
    ),
    "masked": (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
    "causal": (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    "base": (modeling_auto.MODEL_MAPPING_NAMES, transformers.AutoModel),
    "inside": (CONFIG_MAPPING, None),  # parts of larger models
}
# Models of texts that are only in the mapping of all models, or in none: parts of larger ones, and a few.
TEXT = re.compile(r"_text$|_text_model$|_text_encoder$")
ALSO_TEXT = {
    *("bros", "canine", "cohere_compass", "decision_transformer", "dpr", "imagegpt", "lilt", "markuplm"),
    *("mistral4", "mistral_large4", "splinter", "t5gemma2_encoder"),
}
NO_TEXT = {"speech_to_text", "kyutai_speech_to_text"}  # "to text": they read sounds

HEADS, KV_HEADS, WIDTH, HEAD = 6, 3, 48, 8
SMALL: dict[str, object] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), WIDTH),
    **dict.fromkeys(("word_embed_proj_dim", "projection_dim"), WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": 4,
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), KV_HEADS),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "global_head_dim", "swa_head_dim"), HEAD),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "hidden_dim"), 40),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 40),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("max_sequence_length", "seq_length"), 64),
    # latent attention
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "o_lora_rank": 8,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 64,
    # experts; their sizes are multiples of 8, which the grouped product of torch asks for
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_groups", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    "moe_shared_expert_intermediate_size": 16,
    # windows smaller than the text
    "sliding_window": 5,
    "attention_window": 8,
    # layers that carry a state
    "conv_L_cache": 3,
    "mamba_d_state": 4,
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_num_heads": 6,
    "mamba_head_dim": 16,
    "ssm_state_size": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    # the rest
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "sep_token_id": 2,
    "hidden_size_per_layer_input": 8,
    "type_vocab_size": 2,
    "num_hash_functions": 1,
    "num_hash_buckets": 64,
}
EVEN_IF_NONE = frozenset({"pad_token_id", "bos_token_id", "eos_token_id"})
# Names of the list that says what each layer is: a tiny model has one layer of each.
LAYERS = ("layer_types", "layers_block_type")
STATES = re.compile(r"A_log|dt_bias|\.D$|log_|decay|lambda", re.IGNORECASE)  # only some values make sense


def families() -> dict[str, str]:
    """Every family of text models, by its `model_type`, and its kind: a key of `KINDS`."""
    found = {}
    for kind, (mapping, _) in KINDS.items():
        for family in mapping:
            if kind not in ("base", "inside") or (
                (TEXT.search(family) or family in ALSO_TEXT) and family not in NO_TEXT
            ):
                found.setdefault(family, kind)
    return dict(sorted(found.items()))


def config(family: str) -> transformers.PretrainedConfig:
    """A tiny configuration of a family."""
    return _shrunk(CONFIG_MAPPING[family], CONFIG_MAPPING[family](), OWN.get(family, {}))


def model(family: str) -> nn.Module:
    """A tiny model of a family, always the same one, that computes attention in its own way ("eager")."""
    kind = KINDS[families()[family]][1] or _Part
    torch.manual_seed(0)
    made = config(family)
    if kind is transformers.AutoModelForCausalLM and hasattr(made, "is_decoder"):
        made.is_decoder = not made.is_encoder_decoder  # families that are encoders unless asked
    built = kind.from_config(made, attn_implementation="eager").eval()
    enliven(built)
    return built


def inputs(built: nn.Module) -> dict[str, Tensor]:
    """Tokens for a model, in both of its texts if it has two."""
    draw = torch.Generator().manual_seed(1)
    ids = {"input_ids": N_TEXT}
    if built.config.is_encoder_decoder:
        ids["decoder_input_ids"] = N_TARGET
    return {name: torch.randint(5, 90, (1, n), generator=draw) for name, n in ids.items()}


def enliven(built: nn.Module) -> None:
    """Give a model weights with which attention is no longer nearly even, nor any bias or norm nothing."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in built.named_parameters():
            if not weight.is_floating_point() or STATES.search(name):
                continue
            noise = torch.randn(weight.shape, generator=draw).to(weight)
            if weight.dim() > 1:
                weight.copy_(0.15 * noise)
            else:
                weight.nan_to_num_(nan=0.0).clamp_(-2, 2).add_(0.1 * noise)


def _shrunk(kind: type, full, own: Mapping[str, object]):
    """A configuration of a class with small sizes; `full` is its default one, `own` what a family needs."""
    given = full.to_dict()
    sizes = {**SMALL, **{key: value for key, value in own.items() if key not in ("why", "parts")}}
    wanted = {}
    for key, value in sizes.items():
        if key in own or (key in given and (given[key] is not None or key in EVEN_IF_NONE)):
            wanted[key] = value
    for key in LAYERS:
        kinds = given.get(key)
        if key not in own and isinstance(kinds, list) and kinds and all(isinstance(k, str) for k in kinds):
            each = list(dict.fromkeys(kinds))
            n_layers = max(len(each), wanted.get("num_hidden_layers", 2))
            wanted[key] = (each * n_layers)[:n_layers]
            wanted["num_hidden_layers"] = n_layers
    for name in getattr(kind, "sub_configs", None) or {}:
        part = getattr(full, name, None)
        if part is not None and hasattr(part, "to_dict") and name not in own:
            parts = own.get("parts", {}).get(name, {})
            below = OWN.get(part.model_type, {})
            wanted[name] = _shrunk(type(part), part, {**below, **parts})
    return kind(**wanted)


class _Part:
    """Models that are only parts of others, which no mapping has: found by their configuration."""

    @staticmethod
    def from_config(made: transformers.PretrainedConfig, **more: object) -> nn.Module:
        file = type(made).__module__.replace(".configuration_", ".modeling_")
        found = vars(importlib.import_module(file)).values()
        found = [c for c in found if isinstance(c, type) and issubclass(c, transformers.PreTrainedModel)]
        found = [
            c for c in found if c.config_class is type(made) and not c.__name__.endswith("PreTrainedModel")
        ]
        found = [c for c in found if "input_ids" in inspect.signature(c.forward).parameters]
        if not found:
            raise LookupError(
                f"no model in {file.rpartition('.')[2]} has this configuration and reads tokens"
            )
        return min(found, key=lambda c: len(c.__name__))._from_config(made, **more)
