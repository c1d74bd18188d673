"""Small random models of optional libraries, one of each kind of layer.

Sizes are distinct wherever a library lets them be, so that no axis is taken for another by luck. Where a
layer can be mistaken because two sizes are equal, such as channels and tokens, it is also built with these.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

HEADS, WIDTH, DEPTH, LENGTH = 4, 12, 2, 22  # no width of one head, or of all of them, is a number of tokens
D = HEADS * WIDTH
SIZES = {"dim": D, "depth": DEPTH, "heads": HEADS}


class Model(NamedTuple):
    """A model and what it is given: `inputs` of so many texts. `tokens` are counted where they are None."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple]
    tokens: int | None = None


def ids(n_texts: int, length: int = LENGTH, vocabulary: int = 50) -> tuple[Tensor]:
    return (torch.randint(1, vocabulary, (n_texts, length), generator=torch.Generator().manual_seed(1)),)


def vectors(n_texts: int, length: int = LENGTH, width: int = D) -> tuple[Tensor]:
    return (torch.randn(n_texts, length, width, generator=torch.Generator().manual_seed(1)),)


def pictures(n_pictures: int, size: int = 32) -> tuple[Tensor]:
    return (torch.randn(n_pictures, 3, size, size, generator=torch.Generator().manual_seed(1)),)


large = partial(pictures, size=64)


def transformers() -> Iterator[Model]:
    """Every family that reads one text, by its own code and by torch's kernel."""
    from tests.parity import tiny

    for family, kind in tiny.families().items():
        for attention in ("eager", "sdpa") if kind != "seq2seq" else ():
            yield Model(f"{family}, {attention}", partial(_family, family, attention), ids, LENGTH)


def _family(name: str, attention: str) -> nn.Module:
    from tests.parity import tiny

    model = tiny.model(name)
    model.set_attn_implementation(attention)
    model.config.use_cache = False
    return model


def x_transformers() -> Iterator[Model]:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    ways: dict[str, dict] = {
        "flash": {"attn_flash": True},
        "rotary": {"rotary_pos_emb": True},
        "ALiBi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
        "grouped keys": {"attn_kv_heads": 2},
        "soft cap": {"attn_softclamp_logits": True, "attn_logit_softclamp_value": 3.0},
        "qk norm": {"attn_qk_norm": True, "attn_qk_norm_groups": 3},
        "talking heads before": {"attn_pre_talking_heads": True},
        "talking heads after": {"attn_post_talking_heads": True},
        "top-k": {"attn_sparse_topk": 5},
        "selective": {"attn_selective": True},
        "memory keys": {"attn_num_mem_kv": 3},
        "sink": {"attn_head_learned_sink": True},
        "gated values": {"attn_gate_values": True},
        "CoPE": {"attn_use_cope": True, "attn_cope_max_pos": 5},
        "sigmoid": {"attn_sigmoid": True},
        "shift tokens": {"shift_tokens": 1},
        "residual attention": {"residual_attn": True},
        "latent keys": {"attn_use_latent_kv": True, "attn_dim_latent_kv": 10},
        "flash, causal ALiBi": {"attn_flash": True, "alibi_pos_bias": True},
    }
    causal = {"selective", "CoPE"}
    for kind, layers in (("encoder", Encoder), ("decoder", Decoder)):
        for way, options in ways.items():
            if kind == "encoder" and way in causal:
                continue

            def build(layers: type = layers, options: dict = options) -> nn.Module:
                inner = layers(dim=D, depth=DEPTH, heads=HEADS, attn_dim_head=WIDTH, **options)
                return TransformerWrapper(num_tokens=50, max_seq_len=40, attn_layers=inner)

            yield Model(f"{kind}, {way}", build, ids, LENGTH)


def vit_pytorch() -> Iterator[Model]:
    from importlib import import_module

    class_of = lambda file, name: getattr(import_module(f"vit_pytorch.{file}"), name)  # noqa: E731
    usual = {"image_size": 32, "patch_size": 8, "num_classes": 5, "mlp_dim": 20, "dim_head": WIDTH, **SIZES}

    def of(file: str, name: str = "ViT", without: tuple = (), **options: object) -> Callable[[], nn.Module]:
        every = {key: value for key, value in usual.items() if key not in without} | options
        return lambda: class_of(file, name)(**every)

    for name, its in {
        "ViT": "vit parallel_vit vit_for_small_dataset vit_with_patch_merger vit_with_patch_dropout vit_5",
        "SimpleViT": "simple_vit simple_flash_attn_vit simple_vit_with_register_tokens "
        "simple_vit_with_qk_norm simple_vit_with_value_residual simple_vit_with_relative_proj_pos_bias",
        "SimpleUViT": "simple_uvit",
        "DeepViT": "deepvit",
        "nViT": "normalized_vit",
        "RvT": "rvt",
        "JumboViT": "jumbo_vit",
    }.items():
        for file in its.split():
            yield Model(file, of(file, name), pictures, 17 if file == "deepvit" else None)
    yield Model("cait", of("cait", "CaiT", cls_depth=1), pictures, 16)
    xcit = partial(of, "xcit", "XCiT", cls_depth=1)
    yield Model("xcit", xcit(), pictures, 16)
    yield Model("xcit, channels as tokens", xcit(dim_head=16, dim=64), pictures, 16)
    yield Model("fft", of("simple_vit_with_fft", "SimpleViT", freq_patch_size=8), pictures)
    levit = of("levit", "LeViT", ("patch_size", "mlp_dim", "dim_head"), image_size=128, mlp_mult=2, stages=2)
    yield Model("levit", levit, partial(pictures, size=128))
    nest = {"num_hierarchies": 2, "block_repeats": (1, 2)}
    yield Model("nest", of("nest", "NesT", ("mlp_dim", "depth"), patch_size=4, **nest), pictures)
    cvt = {f"s{n}_emb_dim": 8 * n for n in range(1, 4)} | {f"s{n}_depth": 1 for n in range(1, 4)}
    yield Model("cvt", lambda: class_of("cvt", "CvT")(num_classes=5, **cvt), large, 16)
    mobile = {"dims": [24, 32, 40], "channels": [8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28], "num_classes": 5}
    yield Model("mobile_vit", lambda: class_of("mobile_vit", "MobileViT")((64, 64), **mobile), large)
    cct = {"img_size": 32, "embedding_dim": D, "num_layers": 2, "num_heads": 4, "mlp_ratio": 2}
    yield Model("cct", lambda: class_of("cct", "CCT")(n_conv_layers=2, num_classes=5, **cct), pictures)


def timm() -> Iterator[Model]:
    from timm import create_model

    size = {"img_size": 64}
    small = {**size, "embed_dim": D, "depth": 2, "num_heads": HEADS}
    swin = {**size, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 3), "window_size": 4}
    models: dict[str, dict] = {
        "vit_tiny_patch16_224": small,
        "vit_small_patch16_rope_224": small,
        "vit_relpos_small_patch16_224": small,
        "cait_xxs24_224": small,
        "convit_tiny": {**small, "depth": 3, "local_up_to_layer": 2},
        "xcit_nano_12_p16_224": small,
        "samvit_base_patch16": {**small, "window_size": 3, "global_attn_indexes": (1,)},
        "swin_tiny_patch4_window7_224": swin,
        "swinv2_tiny_window8_256": swin,
        "maxvit_rmlp_pico_rw_256": size,
        "mobilevitv2_050": {},
        "volo_d1_224": size,
        "coat_lite_tiny": size,
        "efficientformerv2_s0": {},
        "mixer_s16_224": size,
        "gmlp_ti16_224": size,
    }
    tokens = {"convit_tiny": 17, "coat_lite_tiny": 65, "mobilevitv2_050": 49, "efficientformerv2_s0": 49}
    tokens |= dict.fromkeys(("cait_xxs24_224", "xcit_nano_12_p16_224", "mixer_s16_224", "gmlp_ti16_224"), 16)
    for name, options in models.items():
        build = partial(create_model, name, num_classes=5, **options)
        yield Model(name, build, large if options else partial(pictures, size=224), tokens.get(name))


def linformer() -> Iterator[Model]:
    from linformer import Linformer

    for k in (10, LENGTH):
        for shared in (False, True):
            build = partial(Linformer, **SIZES, seq_len=LENGTH, k=k, one_kv_head=shared)
            yield beside(f"k = {'n' if k == LENGTH else k}{', one key head' if shared else ''}", build)


def performer() -> Iterator[Model]:
    from performer_pytorch import Performer

    for way, options in {
        "FAVOR+": {},
        "ReLU": {"generalized_attention": True},
        "shift": {"shift_tokens": True},
    }.items():
        build = partial(Performer, **SIZES, dim_head=WIDTH, **options)
        yield beside(way, build)


def nystrom() -> Iterator[Model]:
    from nystrom_attention import Nystromformer

    for landmarks in (11, LENGTH):
        own = {"dim_head": WIDTH, "num_landmarks": landmarks, "attn_values_residual_conv_kernel": 3}
        yield beside(f"{landmarks} landmarks", partial(Nystromformer, **SIZES, **own))


def linear_attention() -> Iterator[Model]:
    from linear_attention_transformer import LinearAttentionTransformer

    build = partial(LinearAttentionTransformer, **SIZES, max_seq_len=LENGTH)
    yield beside("to both sides", partial(build, blindspot_size=1))
    yield beside("causal", partial(build, blindspot_size=1, causal=True))
    yield beside("local heads", partial(build, n_local_attn_heads=2, local_attn_window_size=11))


def memory_efficient() -> Iterator[Model]:
    from memory_efficient_attention_pytorch import Attention, CosineSimAttention, FlashAttention

    sizes = {"dim": D, "heads": HEADS, "dim_head": WIDTH}
    buckets = {"q_bucket_size": 5, "k_bucket_size": 4}
    for name, kind, options in (
        ("plain", Attention, {}),
        ("causal", Attention, {"causal": True}),
        ("in chunks", Attention, {"memory_efficient": True, **buckets}),
        ("cosine", CosineSimAttention, {"seq_len": LENGTH}),
        ("flash", FlashAttention, buckets),
    ):
        yield Model(name, partial(Blocks, partial(kind, **sizes, **options)), vectors, LENGTH)


def conformer() -> Iterator[Model]:
    from conformer import Conformer

    yield beside("conformer", partial(Conformer, **SIZES, dim_head=WIDTH, conv_kernel_size=3))


def torch_geometric() -> Iterator[Model]:
    from torch_geometric import nn as graphs

    edges = torch.cartesian_prod(torch.arange(LENGTH), torch.arange(LENGTH)).T.contiguous()

    class Graph(nn.Module):
        def __init__(self, layer: Callable[[], nn.Module]):
            super().__init__()
            self.layer = layer()
            self.attention = Blocks(partial(nn.MultiheadAttention, D, HEADS, batch_first=True))

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(torch.stack([self.layer(each, edges) for each in x]))

    for name, layer in {
        "TransformerConv": partial(graphs.TransformerConv, D, WIDTH, HEADS),
        "GATConv": partial(graphs.GATConv, D, WIDTH, HEADS),
        "GATv2Conv": partial(graphs.GATv2Conv, D, WIDTH, HEADS),
        "GCNConv": partial(graphs.GCNConv, D, D),
        "GPSConv": lambda: graphs.GPSConv(D, graphs.GCNConv(D, D), heads=HEADS),
    }.items():
        yield Model(name, partial(Graph, layer), vectors, LENGTH)


def diffusers() -> Iterator[Model]:
    from diffusers.models import attention_processor as processors
    from diffusers.models.attention import BasicTransformerBlock

    for name, processor in {
        "own code": processors.AttnProcessor(),
        "kernel": processors.AttnProcessor2_0(),
        "slices of 2 heads": processors.SlicedAttnProcessor(2),
        "slices of 1 head": processors.SlicedAttnProcessor(1),
        "one slice": processors.SlicedAttnProcessor(12),
    }.items():
        build = partial(processors.Attention, D, heads=HEADS, dim_head=WIDTH, processor=processor)
        yield Model(name, partial(Blocks, build), vectors, LENGTH)
    yield Model("block", partial(Blocks, partial(BasicTransformerBlock, D, HEADS, WIDTH)), vectors, LENGTH)


class Beside(nn.Module):
    """Layers of a library before an attention of torch, which a trace of only the latter would hide."""

    def __init__(self, layers: nn.Module):
        super().__init__()
        self.layers, self.known = layers, Blocks(partial(nn.MultiheadAttention, D, HEADS, batch_first=True))

    def forward(self, x: Tensor) -> Tensor:
        made = self.layers(x)
        return self.known(made[0] if isinstance(made, tuple) else made)


def beside(name: str, build: Callable[[], nn.Module]) -> Model:
    return Model(name, lambda: Beside(build()), vectors, LENGTH)


class Blocks(nn.Module):
    """Layers in a residual stream."""

    def __init__(self, layer: Callable[[], nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            made = layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
            x = x + (made[0] if isinstance(made, tuple) else made)
        return x


# By the name of the package, as pip knows it.
LIBRARIES: dict[str, Callable[[], Iterator[Model]]] = {
    "transformers": transformers,
    "x-transformers": x_transformers,
    "vit-pytorch": vit_pytorch,
    "timm": timm,
    "diffusers": diffusers,
    "torch-geometric": torch_geometric,
    "linformer": linformer,
    "performer-pytorch": performer,
    "nystrom-attention": nystrom,
    "linear-attention-transformer": linear_attention,
    "memory-efficient-attention-pytorch": memory_efficient,
    "conformer": conformer,
}
