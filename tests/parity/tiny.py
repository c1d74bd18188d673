"""A tiny random model of every text architecture in the installed transformers.

One table of small sizes serves nearly all; what a family needs besides stands in `OWN`, with the reason.
Sizes differ wherever they may, so that nothing is right by accident: 11 tokens and 7 of the target,
6 heads over 3 of keys and values, 4 heads in decoders, 2 layers of an encoder and 3 of a decoder.
"""

import importlib
import inspect
import re
from collections.abc import Mapping

import tokenizers
import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from mha_core.sources.huggingface.model import Model
from mha_core.traces.trace import AttentionTrace
from tests.parity.own import OWN

LENGTHS = ((11, 7), (41, 23))  # tokens of a text and of its target; the second beyond every limit
LONG = (2100, 23)
POSITIONS, LONG_POSITIONS = 64, 2304
VOCABULARY = 97
WORDS = ("<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(4, VOCABULARY)))
MAPPINGS = transformers.models.auto.modeling_auto
# Which families there are, by the kind of their models. Each is built once, as the first kind that it has.
KINDS = {
    "seq2seq": (MAPPINGS.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForSeq2SeqLM),
    "masked": (MAPPINGS.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
    "causal": (MAPPINGS.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    "base": (MAPPINGS.MODEL_MAPPING_NAMES, transformers.AutoModel),
    "inside": (CONFIG_MAPPING, None),  # parts of larger models
}
# Models of texts that are only in the mapping of all models, or in none: parts of larger ones, and a few.
TEXT = re.compile(r"_text$|_text_model$|_text_encoder$")
ALSO_TEXT = {
    *("bros", "canine", "cohere_compass", "dpr", "imagegpt", "lilt", "markuplm"),
    *("mistral4", "mistral_large4", "splinter", "t5gemma2_encoder"),
}
NO_TEXT = {"speech_to_text", "kyutai_speech_to_text"}  # "to text": they read sounds
# Of which the library's mappings have a part alone, or a model that it does not export.
UNMAPPED = {"musicgen", "musicgen_melody", "voxtral_realtime_text"}

HEADS, KV_HEADS, WIDTH, HEAD = 6, 3, 48, 8
SMALL: dict[str, object] = (
    dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY)
    | dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size"), WIDTH)
    | dict.fromkeys(("word_embed_proj_dim", "projection_dim"), WIDTH)
    | dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2)
    | dict.fromkeys(("encoder_layers", "num_encoder_layers"), 2)
    | dict.fromkeys(("decoder_layers", "num_decoder_layers"), 3)
    | dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS)
    | {"encoder_attention_heads": HEADS, "decoder_attention_heads": 4}
    | dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), KV_HEADS)
    | dict.fromkeys(("head_dim", "d_kv", "d_head", "global_head_dim", "swa_head_dim"), HEAD)
    | dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "hidden_dim"), 40)
    | dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 40)
    # latent attention
    | {"q_lora_rank": 12, "kv_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
    | {"o_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 8}
    # experts; their sizes are multiples of 8, which the grouped product of torch asks for
    | dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4)
    | dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2)
    | dict.fromkeys(("n_group", "topk_group", "n_groups", "n_shared_experts", "first_k_dense_replace"), 1)
    | dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16)
    | {"moe_shared_expert_intermediate_size": 16}
    # layers that carry a state
    | {"conv_L_cache": 3, "mamba_d_state": 4, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_expand": 2}
    | {"mamba_n_groups": 1, "mamba_num_heads": 6, "mamba_head_dim": 16, "ssm_state_size": 4}
    | {"linear_num_heads": 3, "linear_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2}
    | {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    # the rest
    | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    | {"sep_token_id": 2, "hidden_size_per_layer_input": 8, "type_vocab_size": 2}
    | {"num_hash_functions": 1, "num_hash_buckets": 64}
)
EVEN_IF_NONE = frozenset({"pad_token_id", "bos_token_id", "eos_token_id", "sliding_window"})
PLACES = re.compile(
    r"max_(position_embeddings|seq_len|sequence_length)|n_positions|n_ctx|seq_length"
    r"|max_(source|target|encoder_position|decoder_position)_(positions|embeddings)"
)
# Every number from which on a text is attended to in another way: below the longer text, and where that can
# be above the 7 tokens of the trial.
LIMITS: tuple[tuple[re.Pattern, int], ...] = tuple(
    (re.compile(pattern), size)
    for pattern, size in (
        (r"max_window_layers|index_local_blocks|num_random_blocks", 1),
        (r"index_topk_blocks", 2),
        (r"index_block_size|index_kpool|global_block_size|.*compress_ratio", 4),
        (r"(?!.*(audio|speech|acoustic|feed_forward|lm_head)).*(chunk_(size|length)|block_size)", 8),
        (r"index_topk|.*budget|.*num_(relative_)?buckets|position_buckets|local_transformer_stride", 8),
        (r"attention_window", 8),
        (r"(.*sliding_window|(.*_)?window(_size|_len)|local_attention|local_radius)(_size)?", 9),
        (r"(?!.*2d).*(max_distance|max_relative_positions)|floor_scale|log_scaling_n_floor", 16),
        (r"original_max_position_embeddings", 16),
    )
)
# Names of the list that says what each layer is: a tiny model has one layer of each.
LAYERS = ("layer_types", "layers_block_type", "indexer_types", "no_rope_layers")
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


def config(family: str, positions: int = POSITIONS) -> transformers.PretrainedConfig:
    """A tiny configuration of a family, for texts of at most this many tokens."""
    kind = CONFIG_MAPPING[family]
    return _shrunk(kind, kind(), OWN.get(family, {}), positions)


def model(family: str, positions: int = POSITIONS, **changed: object) -> nn.Module:
    """A tiny model of a family, always the same one, that computes attention in its own way ("eager").

    `changed` has other values for its configuration.
    """
    kind = _Part if family in UNMAPPED else KINDS[families()[family]][1] or _Part
    torch.manual_seed(0)
    made = config(family, positions)
    for part in (made, made.get_text_config()) if changed else ():
        vars(part).update(changed)
    if kind is transformers.AutoModelForCausalLM and hasattr(made, "is_decoder"):
        made.is_decoder = not made.is_encoder_decoder  # families that are encoders unless asked
    built = kind.from_config(made, attn_implementation="eager").eval()
    enliven(built)
    if built.config.is_encoder_decoder and getattr(built.config, "decoder_start_token_id", None) is None:
        built.generation_config.decoder_start_token_id = 1  # where T5 has it
    return built


def tokenizer(built: nn.Module) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of whole words, one for each id of the vocabulary; of BERT-like models also of segments."""
    words = {word: number for number, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = ["input_ids", "attention_mask"]
    if hasattr(built.config, "type_vocab_size"):
        names.append("token_type_ids")
    marks = {f"{name}_token": word for name, word in zip(("pad", "bos", "eos", "unk"), WORDS, strict=False)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **marks)


def texts(length: tuple[int, int]) -> tuple[str, str]:
    """A text of this many tokens, and a target that is one shorter, because of its start token."""
    draw = torch.Generator().manual_seed(1)
    text, target = (torch.randint(5, 90, (n,), generator=draw).tolist() for n in (length[0], length[1] - 1))
    return " ".join(WORDS[n] for n in text), " ".join(WORDS[n] for n in target)


def inputs(model: Model, trace: AttentionTrace, length: tuple[int, int]) -> dict[str, Tensor]:
    """The inputs of a model for a text: those of its tokenizer, and the target of the trace."""
    given = dict(model.tokenizer(trace.tokens.text, return_tensors="pt"))
    assert [WORDS[n] for n in given["input_ids"][0]] == list(trace.tokens.pieces)
    if model.has_target:
        sides = [layer.sides.queries.pieces for layer in trace.layers if layer.kind in ("decoder", "cross")]
        target = sides[0] if sides else ("<s>", *texts(length)[1].split())
        given["decoder_input_ids"] = torch.tensor([[WORDS.index(piece) for piece in target]])
    return given


def enliven(built: nn.Module) -> None:
    """Give a model weights with which attention is no longer nearly even, nor any bias or norm nothing."""
    draw = torch.Generator().manual_seed(2)
    unsaved = getattr(built, "_keys_to_ignore_on_save", None) or ()  # tables of positions that are computed
    with torch.no_grad():
        for name, weight in built.named_parameters():
            if not weight.is_floating_point() or STATES.search(name) or name in unsaved:
                continue
            noise = torch.randn(weight.shape, generator=draw).to(weight)
            if weight.dim() > 1:
                weight.copy_(0.15 * noise)
            else:
                weight.nan_to_num_(nan=0.0).clamp_(-2, 2).add_(0.1 * noise)


def _shrunk(kind: type, full, own: Mapping[str, object], positions: int):
    """A configuration with small sizes; `full` is the default one, `own` what a family needs."""
    given = full.to_dict()
    limits = {key: positions for key in given if PLACES.fullmatch(key)}
    limits |= {key: size for key in given for pattern, size in LIMITS if pattern.fullmatch(key)}
    sizes = {**limits, **SMALL, **{key: value for key, value in own.items() if key != "parts"}}
    wanted = {}
    for key, value in sizes.items():
        if key in own or (key in given and (given[key] is not None or key in EVEN_IF_NONE)):
            wanted[key] = value
    if "use_sliding_window" in given and "use_sliding_window" not in own:
        wanted["use_sliding_window"] = True  # then the configuration itself makes its list of layers
    else:
        wanted |= _layers(given, own, wanted.get("num_hidden_layers", 2))
    if given.get("rope_parameters") and "rope_parameters" not in own:
        wanted["rope_parameters"] = _below(given["rope_parameters"])
    for name in getattr(kind, "sub_configs", None) or {}:
        part = getattr(full, name, None)
        if part is not None and hasattr(part, "to_dict") and name not in own:
            parts = own.get("parts", {}).get(name, {})
            below = OWN.get(part.model_type, {})
            wanted[name] = _shrunk(type(part), part, {**below, **parts}, positions)
    return kind(**wanted)


def _layers(given: Mapping, own: Mapping, n_layers: int) -> dict[str, object]:
    """One layer of each kind that a full model has, as far as its configuration lists them."""
    lists = {key: list(dict.fromkeys(given[key])) for key in LAYERS if key not in own and given.get(key)}
    n_layers = max([n_layers, *map(len, lists.values())])
    found = {key: (each * n_layers)[:n_layers] for key, each in lists.items()}
    return {**found, "num_hidden_layers": n_layers} if found else {}


def _below(rope: dict) -> dict:
    """Rotary codes that are other ones from some length on: from a length within the text."""
    name = "original_max_position_embeddings"
    return {
        key: _below(value) if isinstance(value, dict) else 16 if key == name and value else value
        for key, value in rope.items()
    }


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
