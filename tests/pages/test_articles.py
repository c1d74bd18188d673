"""What readers of the articles look for: each concept has a scene, whose page shows it in Chinese."""

import json
import re
from typing import NamedTuple

import pytest

from mha_core.analysis.embeddings import RELATIONS, agreement, chance, table
from mha_core.sources import mini
from pages._kit.cases import cases
from pages._kit.text import catalogue
from tests.pages.conftest import texts

STEPS, TOKEN, WHAT_IF = "understand/steps.py", "see/token.py", "understand/what_if.py"
HEADS, COMPARE, LESSONS = "see/heads.py", "see/compare.py", "learn/lessons.py"
COST, WORDS, TRAIN = "understand/cost.py", "understand/embeddings.py", "learn/train.py"


class Row(NamedTuple):
    """The page of some concepts, its link, the folds that are open, and what must be found on it for each."""

    page: str
    link: dict
    concepts: dict[str, str]
    folds: tuple[str, ...] = ()


HUMPTY = {"text": "humpty dumpty sat on", "source": "random", "h": 8, "d_model": 512}
TABLE = (
    Row(
        STEPS,
        {},
        {
            "what a token is, how text becomes tokens": "中文没有空格",
            "what [CLS] is": "BERT 用它判断整句的类别",
            "Attention(Q, K, V) in one line": '["Attention(", "", ""]',
            "MultiHead in one line": '["MultiHead(", "", ""]',
            "the shape of W_i^Q": '["ℝ", "64×16", ""]',
            "why the paper writes QW and not XW": "投影*之前*的输入",
            "X, Q, K, V and their shapes": r"\underset{12 \times 64}{X}",
            "split by reshape, equal to blocks of W^Q, and Q needs no further matrix": "不必像有些文章那样",
            "a projection, not slices of the vector": "而不是把词自己的向量切成",
            "Q Kᵀ row by row": "每个查询和每个键做点积",
            "1/√d_k and why": "分数太大，softmax 就把全部权重放在一个词元上",
            "softmax by row; over the whole matrix is wrong": "和为 1 的是整个矩阵",
            "weighted sum of each component": "是 A[m, n] · V[n, c] 对 n 求和",
            "concat": "并排拼接",
            "W^O mixes; Z has the shape of X": "Z 与 X 形状相同",
            "the whole class in PyTorch": "class MultiHeadAttention(nn.Module)",
            "comments of the class in Chinese": "# 所有头一次相乘，再拆开",
            "shapes of a mask": "(batch, 1, L, L)",
        },
        ("module",),
    ),
    Row(
        STEPS,
        {"architecture": "standard", "layer": 1, "operation": "add"},
        {"a word changes and stays itself: residual and norm": "自己也仍然是和的一部分"},
    ),
    Row(
        STEPS,
        {"architecture": "latent"},
        {"MLA: c^KV, W^UK, W^UV": "W^{UK}", "MLA: what a cache keeps": "32 个数，而不是 128 个"},
    ),
    Row(STEPS, HUMPTY, {"score matrix in symbols": "q_{\\text{humpty}}"}),
    Row(
        STEPS,
        {"text": "你好吗？", "source": "random", "mask": "causal", "layers": 2, "layer": 2},
        {"mask −∞": "分数变成 −∞", "stacking Z → X": "X 就是第 1 层的输出 Z"},
    ),
    Row(STEPS, {"steps_view": "layers"}, {"two layers in Chinese": "**它**"}),
    Row(
        TOKEN,
        {"layer": 2, "head": 1, "token": "它"},
        {
            "the formulas, and the part that is explained": '"lit": ["scores", "scale", "mask", "softmax"]',
            "a search worked out": "最匹配的是“动物”",
            "from weights to the output": "+ ",
        },
    ),
    Row(WHAT_IF, {"edits": "same"}, {"the same W in all heads": "所有头都用头 1 的 W"}),
    Row(
        WHAT_IF,
        {"text": "你好吗？", "source": "random", "h": 1, "edits": "concatenated"},
        {"h = 1, W^O = I": "去掉 Wᴼ"},
    ),
    Row(
        COST,
        {},
        {
            "base: 512 and 8 heads": '["ℝ", "512×64", ""]',
            "equal cost of h heads, in parallel": "GPU 可以并行",
            "MHA, GQA, MQA and MLA": "潜在向量",
            "the class for the sizes on screen": "d_model=512, num_heads=8",
        },
        ("module",),
    ),
    Row(
        COST,
        {"cost_batch": 2, "cost_h": 4},
        {"X (N, L, d_model)": "2 × 10 × 512", "4 heads": "2 × 4 × 10 × 128"},
    ),
    Row(COST, {"cost_tokens": 2, "cost_d_v": 100}, {"d_v is not d_k": "800 × 512"}),
    Row(COST, {"cost_kv_rank": 256}, {"the class of MLA": "self.W_DKV"}, ("module",)),
    Row(
        WORDS,
        {},
        {
            "relations of words, against chance": "随机余弦的平均值有 95% 在",
            "a projection loses information": "好比立体的影子",
        },
    ),
    Row(TRAIN, {"train_view": "heads"}, {"Table 3, BLEU by h": "newstest2013"}),
    Row(
        HEADS,
        {"h": 8, "layer": 2, "head": 1, "heads": "1,6", "token": "它"},
        {"two heads in two colours, then all": '"heads": "1,6"', "what 它 stands for": "“它”指代哪个名词？"},
    ),
    Row(
        HEADS,
        {"h": 8, "layer": 2, "head": 6, "heads": "4,5,6", "token": "它"},
        {"heads by position and by meaning": "前一个词"},
    ),
    Row(
        HEADS,
        {"text": "你好吗？", "source": "random", "drawing": "matrix"},
        {"each word with each": '"file": "headscope-你好吗"'},
    ),
    Row(
        HEADS,
        {"text": "humpty dumpty sat on", "architecture": "decoder"},
        {"the next word": "“on”后面是哪个词？"},
    ),
    Row(
        TOKEN,
        {"text": "他在酒店订了一个房间。", "layer": 2, "head": 3, "token": "订"},
        {"a word as a mixture of values": "**订** = 0"},
    ),
    Row(
        WHAT_IF,
        {"text": "你好吗？", "source": "random", "edits": "mask,mask=padding:1"},
        {"padding": "填充 1"},
    ),
    Row(COMPARE, {"layer": 2, "head": 1, "token": "它"}, {"W is random, then trained": "训练前"}),
    Row(LESSONS, {"lesson": "several-heads"}, {"one head averages its signals": "平均"}),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.page} {' '.join(map(str, row.link.values()))}")
def test_each_concept_of_the_articles_is_on_its_page(opened_on, row):
    app = opened_on(row.page, *row.folds, lang="zh", **row.link)
    parts = [*texts(app), *(one.value for kind in ("header", "latex") for one in app.get(kind))]
    parts += [html.body for html in app.get("html")]
    parts += [button.label for button in app.button]
    sent = (one.proto.json for one in app.get("bidi_component"))
    parts += [json.dumps(json.loads(data), ensure_ascii=False) for data in sent if data]
    page = "\n".join(parts)
    assert [concept for concept, found in row.concepts.items() if found not in page] == []


def test_case_16_says_in_chinese_what_its_pairs_say():
    scene = next(case for case in cases() if case.name == "words").links["zh"]
    assert "h=8" in scene
    words, matrix = mini.vectors(mini.model(mini.find("zh", "glass-box", 8, 64)))
    vectors, pairs = table(words, matrix.numpy()), RELATIONS["zh"]
    gender, number = (agreement(vectors, pairs[name]) for name in ("gender", "number"))
    said = catalogue("zh")["case.words.notice"]
    numbers = [gender.loc["国王→女王", "男孩→女孩"], gender.loc["男人→女人", "国王→女王"]]
    numbers += [chance(*matrix.shape).pair, number.loc["他→他们", "她→她们"]]
    assert re.findall(r"\d\.\d\d", said) == [f"{one:.2f}" for one in numbers]
