"""What a family needs besides the common small sizes, each with a short reason.

"parts" has what the configurations inside one need.
"""

_LATENT = {"num_key_value_heads": 6}  # latent attention has a key for each head
_ROTARY = {**_LATENT, "head_dim": 4}  # the width of a head stands for that of its rotary part
_INDEX = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
}
_KINDS = ("sliding_attention", "full_attention")
_STATE = ("linear_attention", "full_attention")
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def _mrope(*sections: int) -> dict:
    """Rotary positions in three parts, which must fill half of what is turned."""
    return {"rope_parameters": {**_ROPE, "mrope_section": list(sections)}}


def _of(families: str, own: dict) -> dict[str, dict]:
    return dict.fromkeys(families.split(), own)


OWN: dict[str, dict] = {
    **_of("axk2 deepseek_v32 glm4_moe_lite glm_moe_dsa minicpm3 dots3_note_text", _LATENT),
    **_of("mistral4 mistral_large4 mistral_large4_text unlimited_ocr_text", _LATENT),
    **_of("axk1 deepseek_v3 longcat_flash youtu", _ROTARY),
    **_of("hunyuan_v1_dense hunyuan_v1_moe ministral", {"head_dim": 8}),  # the default leaves it open
    **_of(
        "glm4v_text glm_image_text glm_ocr_text qwen2_5_vl_text qwen2_vl_text paddleocr_vl_text",
        _mrope(1, 1, 2),
    ),
    "qwen2_5_omni_text": _mrope(1, 1, 2),
    # a size that its configuration does not have
    "qwen3_omni_moe_talker_text": {**_mrope(1, 1, 2), "shared_expert_intermediate_size": 16},
    "pix2struct_text_model": {"initializer_range": 0.02},  # only its parent's configuration has it
    **_of("t5gemma2_text", {"dropout_rate": 0.0}),  # only its parent's configuration has it
    "bailing_hybrid": {
        **_LATENT,
        "head_dim": 8,
        "layer_types": [*_STATE],
        "num_expert_group": 1,
        "num_experts_per_token": 2,
    },
    "bamba": {"attn_layer_indices": [1]},  # its list of layers
    **_of("big_bird bigbird_pegasus", {"block_size": 4}),  # from seven blocks on it looks at parts
    # its parts must fit each other
    "blt": {
        "encoder_hash_byte_group_vocab": 97,
        "parts": {key: {"hidden_size_global": 48} for key in ("encoder_config", "decoder_config")},
    },
    "canine": {"local_transformer_stride": 16},  # from two strides on it looks at parts
    "codegen": {"n_head": 4, "rotary_dim": 4},  # splits its heads into four parts
    "deepseek_v2": {**_ROTARY, "num_experts_per_tok": 2},
    # every model that was trained has terms of words and places
    **_of(
        "deberta deberta-v2",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 16},
    ),
    "diffllama": {"num_key_value_heads": 2},  # halves its heads of values
    # the default leaves its windows open, and positions are by kind of layer
    "cohere_compass_text": {"layer_types": [*_KINDS], "rope_parameters": dict.fromkeys(_KINDS, _ROPE)},
    "cosmos3_edge_text": _mrope(2, 1, 1),
    # its configuration has parts
    "dbrx": {
        "attn_config": {"kv_n_heads": 3, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 40, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 48},
    },
    # the default leaves its experts open
    "deepseek_ocr2_text": {
        "mlp_layer_types": ["dense", "sparse"],
        "num_experts_per_tok": 2,
        "num_key_value_heads": 6,
    },
    # a layer of each kind
    "deepseek_v4": {
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        "num_hidden_layers": 3,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "index_topk": 3,
    },
    # the default leaves its experts open
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16},
    # its parts must fit each other
    "dots3_note": {
        "parts": {
            "vision_config": {"pyramid_num_routed": [-1, 4], "adapter_in_dim": 48, "adapter_out_dim": 48},
            "audio_config": {"adapter_input_size": 48, "adapter_out_dim": 48, "head_dim": 8},
        }
    },
    **_of("laguna mellum", {"layer_types": [*_KINDS]}),  # the default leaves its windows open
    "lfm2": {"layer_types": ["conv", "full_attention"]},  # the default leaves its layers open
    # the default leaves its sparse layers open
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"], "rotary_dim": 4},
    # the default leaves its experts open
    "dots1": {
        "layer_types": [*_KINDS],
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
    },
    # a size for each kind of experts
    "ernie4_5_vl_moe_text": {**_mrope(1, 1, 2), "moe_intermediate_size": [16, 16], "moe_num_experts": 4},
    "esm": {"vocab_size": 97},  # the default leaves the vocabulary open
    "esmc": {"num_key_value_heads": 6},  # no shared keys
    "falcon_h1": {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_ssm": 96},  # its inner width
    # the last layers share the keys of layers before them
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": [*_KINDS, *_KINDS]},
    "glm4v_moe_text": {**_mrope(1, 0, 1)},
    "glm5_next_text": {**_LATENT, "qk_rope_head_dim": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 5},  # its list of layers
    "gptj": {"rotary_dim": 4},  # turns at most the width of a head
    "granitemoehybrid": {"layer_types": [*_STATE]},  # the default has no attention
    "hunyuan_vl_text": {**_mrope(1, 1, 2), "head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},  # its list of layers
    "kimi_linear": {"num_experts_per_token": 2, "num_key_value_heads": 6},  # latent attention
    "kosmos_2_text_model": {"layers": 2, "attention_heads": 8},  # names of its own
    "kosmos_2_5_text_model": {"layers": 2},  # a name of its own
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},  # the default leaves its layers open
    "luke": {"entity_vocab_size": 97},  # many entities
    "mamba2": {"num_heads": 6, "head_dim": 16},  # its inner width
    "mobilebert": {"intra_bottleneck_size": 24},  # narrow layers inside
    "nemotron3_5_transcribe_word_timestamp": {"blank_token_id": 96},  # a word of its vocabulary
    # its parts must fit each other
    "nemotron3_diarization": {"chunk_length": 500, "parts": {"head_config": {"audio_hidden_size": 48}}},
    "neomme": {"head_dim": 16},  # two parts of rotary positions
    "mpnet": {"relative_attention_num_buckets": 32},  # counts with 32 whatever its configuration says
    "nemotron": {"num_key_value_heads": 3},  # the default leaves them open
    "perceiver": {"d_latents": 48, "num_latents": 5, "num_self_attends_per_block": 2},  # its latents
    **_of("qwen4_exp qwen4_exp_text", _INDEX),
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},  # its list of layers
    # its table of positions; from a chunk on it looks at parts
    "reformer": {
        "axial_pos_embds_dim": [16, 32],
        "axial_pos_shape": [8, 8],
        **dict.fromkeys(("local_attn_chunk_length", "lsh_attn_chunk_length"), 16),
        "hash_seed": 0,
    },
    "sam3_lite_text_text_model": {"num_hidden_layers": 4},  # the first and last layer have no attention
    "smollm3": {"no_rope_layers": [1, 0]},  # windows are where no rotary code is
    "xmod": {"default_language": "en_XX", "languages": ["en_XX", "de_DE"]},  # languages have adapters
    # two layers share their weights
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]},
    # windows are left open, and each token has one expert
    "zaya": {"layer_types": ["hybrid_sliding", "hybrid"], "num_experts_per_tok": 1},
}
