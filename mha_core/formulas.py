"""The formulas of the steps, in LaTeX, with the sizes of a layer written in."""

import re
from collections.abc import Mapping, Sequence

# LaTeX, in which `X[L, d_model]` is a symbol with its shape under it, filled in with numbers, and
# `_i` the chosen head, `_j` its key/value head. L tokens look at M: the same ones, or those of another text,
# whose vectors have d_y numbers.
FORMULAS = {
    "project": r"""\begin{gathered}
        X[L, d_model] \;\; W^Q[d_model, h·d_k] = Q[L, h·d_k] \\
        X[M, d_y] \;\; W^K[d_y, n_kv·d_k] = K[M, n_kv·d_k] \\
        X[M, d_y] \;\; W^V[d_y, n_kv·d_v] = V[M, n_kv·d_v]
        \end{gathered}""",
    "split": r"Q[L, h·d_k] \;\to\; Q_1 \; … \; Q_i[L, d_k] \; … \; Q_{h}",
    "scores": r"Q_i[L, d_k] \;\; K_j^{\top}[d_k, M] = S_i[L, M]",
    "scale": r"S_i[L, M] \cdot \tfrac{1}{\sqrt{d_k}} = S_i \cdot {scale}",
    "mask": r"s_{mn} \;\to\; \begin{cases} s_{mn} & \text{if } m \text{ may look at } n \\"
    r" -\infty & \text{if not} \end{cases}",
    "softmax": r"a_{mn} = \frac{e^{s_{mn}}}{e^{s_{m1}} + … + e^{s_{mL}}} \qquad A_i[L, M]",
    "mix": r"A_i[L, M] \;\; V_j[M, d_v] = \text{head}_i[L, d_v]",
    "concat": r"\text{head}_1 \,\Vert\, … \,\Vert\, \text{head}_{h} = \text{concat}[L, h·d_v]",
    "output": r"\text{concat}[L, h·d_v] \;\; W^O[h·d_v, d_model] = Z[L, d_model]",
}
SHAPED = re.compile(r"(?P<symbol>\S+)\[(?P<rows>[^],]+), (?P<columns>[^]]+)]")
WORDS = {
    "rotary": r"\text{RoPE}",
    "scale": r"\cdot\, {by:.4g}",
    "clip": r"\pm {at:.4g}",
    "norm": r"\text{{{kind}}}",
}


def formula(name: str, sizes: dict) -> str:
    """The formula of a step with the sizes written in."""

    def shaped(match: re.Match) -> str:
        rows, columns = (
            re.sub(r"[A-Za-z_]+", lambda word: str(sizes[word[0]]), match[axis]).replace("·", r"{\cdot}")
            for axis in ("rows", "columns")
        )
        return rf"\underset{{{rows} \times {columns}}}{{{match['symbol']}}}"

    latex = SHAPED.sub(shaped, FORMULAS[name])
    for word in ("h", "scale"):
        latex = latex.replace(f"{{{word}}}", f"{{{sizes[word]}}}")
    if sizes["M"] != sizes["L"]:
        latex = latex.replace("s_{mL}", "s_{mM}")
    return latex.replace("_i", f"_{{{sizes['i']}}}").replace("_j", f"_{{{sizes['kv']}}}")


def primed(latex: str, names: Sequence[str]) -> str:
    """A formula, sizes written in, in which these of Q, K and V are not yet what attention reads: Q'."""
    for name in names:
        latex = re.sub(rf"(?<![\w^]){name.upper()}(?=[}}_])", f"{name.upper()}'", latex)
    return latex


def way(between: Mapping[str, Sequence[Mapping]], sizes: dict) -> str:
    """What becomes of Q', K' and V' of a head on their way to Q, K and V, a line for each that changes."""
    lines = []
    for name, steps in between.items():
        letter, head = name.upper(), sizes["i" if name == "q" else "kv"]
        line = f"{letter}{chr(39)}_{{{head}}}"
        for number, step in enumerate(steps, start=1):
            told = WORDS[step["step"]]
            told = told if step["step"] == "rotary" else told.format(**step)
            marks = "" if number == len(steps) else "'" * (number + 1)
            line += rf" \xrightarrow{{\;{told}\;}} {letter}{marks}_{{{head}}}"
        lines += [line] if steps else []
    return r"\begin{gathered}" + r" \\ ".join(lines) + r"\end{gathered}"


def from_embeddings(latex: str) -> str:
    """The projections with V made of the words' embeddings E instead of X."""
    head, _, values = latex.rpartition("{X}")
    return f"{head}{{E}}{values}"
