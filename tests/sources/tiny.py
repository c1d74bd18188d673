"""Tiny random models of many architectures with small tokenizers, all of them made here."""

import copy
import json
from functools import cache

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from mha_core.sources.huggingface import model as huggingface

TEXT = "The animal didn't cross the street because it was too tired."
TRAINING = [TEXT, "a bird sang; the street was too wide for it.", "动物没有过马路，因为它太累了。"]

# Sizes differ from each other, and are primes where the architecture allows.
SHARED = {
    "hidden_size": 60,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 14,
    "num_hidden_layers": 2,
    "intermediate_size": 52,
    "pad_token_id": None,
}
BERT = {"hidden_size": 39, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 53}
WINDOW = SHARED | {"sliding_window": 5}
CONFIGS = {
    "bert": ("Bert", BERT),
    "roberta": ("Roberta", BERT | {"pad_token_id": 1, "max_position_embeddings": 514}),
    "gpt2": ("GPT2", {"n_embd": 39, "n_head": 3, "n_layer": 2, "n_positions": 97}),
    "gpt_neox": ("GPTNeoX", BERT | {"hidden_size": 60, "num_attention_heads": 5, "rotary_pct": 0.5}),
    "llama": ("Llama", SHARED),
    "mistral": ("Mistral", WINDOW),
    "qwen3": ("Qwen3", SHARED),
    "cohere": ("Cohere", SHARED | {"hidden_size": 84}),
    "glm": ("Glm", SHARED | {"head_dim": 12, "partial_rotary_factor": 0.5}),
    "gemma2": ("Gemma2", WINDOW | {"attn_logit_softcapping": 3.0, "query_pre_attn_scalar": 23}),
    "gpt_oss": ("GptOss", WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek_v3": (
        "DeepseekV3",
        {"hidden_size": 44, "num_hidden_layers": 2, "intermediate_size": 52, "moe_intermediate_size": 20}
        | {"num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": 19, "kv_lora_rank": 23}
        | {"qk_rope_head_dim": 10, "qk_nope_head_dim": 13, "v_head_dim": 17, "n_routed_experts": 4}
        | {"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    ),
    "bloom": ("Bloom", {"hidden_size": 39, "n_head": 3, "n_layer": 2}),
    "falcon": ("Falcon", BERT | {"hidden_size": 42, "alibi": True}),
    "t5": (
        "T5",
        {"d_model": 39, "d_kv": 13, "d_ff": 53, "num_layers": 2, "num_heads": 3, "decoder_start_token_id": 0},
    ),
    "bart": (
        "Bart",
        {"d_model": 42, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 97}
        | {"encoder_attention_heads": 3, "decoder_attention_heads": 6}
        | {"encoder_ffn_dim": 53, "decoder_ffn_dim": 47, "decoder_start_token_id": 2}
        | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    ),
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


def forget() -> None:
    """Drop the models that `mha.trace` keeps in memory."""
    huggingface._loaded.clear()
    huggingface._twins.clear()
    huggingface.free()


def byte_level() -> Tokenizer:
    """As in GPT-2: letters that represent bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TRAINING[:2], trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """As in BERT: ##, and [CLS] … [SEP]."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        TRAINING, trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 4), ("[SEP]", 5)],
    )
    return tokenizer


def sentence_piece() -> Tokenizer:
    """As in Llama: ▁ for a space, bytes for characters that are unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    own = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=own, show_progress=False)
    tokenizer.train_from_iterator(TRAINING[:2], trainer)
    kept = [token for token in own if not token.startswith("<0x")]
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [t for t in described["added_tokens"] if t["content"] in kept]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


TOKENIZERS = {"byte_level": byte_level, "word_piece": word_piece, "sentence_piece": sentence_piece}


def fast(kind: str = "byte_level"):
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZERS[kind](),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def module(family: str, seed: int = 7, **changed):
    """A model with random weights, not too small ones: heads should differ."""
    prefix, settings = CONFIGS[family]
    config = getattr(transformers, f"{prefix}Config")(**{"vocab_size": 557} | settings | changed)
    torch.manual_seed(seed)
    kind = f"{prefix}ForConditionalGeneration" if family in ("t5", "bart") else f"{prefix}Model"
    made = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def own_weights(model: torch.nn.Module, **inputs) -> dict[str, list[np.ndarray]]:
    """The weights that a copy of the model returns for ids, set to eager, by the kind of attention."""
    own = copy.deepcopy(model).eval()
    own.set_attn_implementation("eager")
    own.config._attn_implementation = "eager"  # of Falcon, which lets nobody set it
    rows = {name: torch.as_tensor(row).reshape(1, -1) for name, row in inputs.items()}
    with torch.no_grad():
        result = own(**rows, output_attentions=True)
    kinds = {"self": "", "encoder": "encoder_", "decoder": "decoder_", "cross": "cross_"}
    returned = {kind: result.get(f"{prefix}attentions") for kind, prefix in kinds.items()}
    return {kind: [one[0].float().numpy() for one in every] for kind, every in returned.items() if every}


def state(model: torch.nn.Module) -> list:
    """All that a trace could have left behind: of each module, each config and each parameter."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    return [
        [(id(config), config.to_dict(), config._attn_implementation) for config in configs.values()],
        [(id(part), type(part), {k: id(v) for k, v in vars(part).items()}) for part in model.modules()],
        [
            {k: list(v) for k, v in vars(part).items() if k.endswith("_hooks") and v is not None}
            for part in model.modules()
        ],
        [(id(p), p.requires_grad, p._version, p.dtype, id(p.grad)) for p in model.parameters()],
        [part.training for part in model.modules()],
    ]


TOKENIZER_OF = dict.fromkeys(("llama", "t5", "deepseek_v3", "gemma2"), "sentence_piece") | {
    **dict.fromkeys(("gpt2", "bloom", "gpt_oss"), "byte_level"),
    "bert": "word_piece",
}


def folders(tmp_path_factory):
    """`make("bert")`: the path of a folder with that model and its tokenizer, made once."""

    @cache
    def make(family: str, tokenizer: str = "") -> str:
        path = tmp_path_factory.mktemp(family)
        module(family).save_pretrained(path)
        fast(tokenizer or TOKENIZER_OF[family]).save_pretrained(path)
        return str(path)

    return make
