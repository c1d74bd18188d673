"""The models that come with Headscope: which there are, and where their weights lie."""

import json
from functools import cache
from pathlib import Path

from mha_core import bundled
from mha_core.training.fit import Plan

FOLDER = ("assets", "weights")
MANIFEST = "manifest.json"

# Steps by width: wide models take longer a step and need fewer.
STEPS = {32: 20_000, 64: 8_000, 128: 6_000, 256: 5_000}
SHARE = 0.5

# Wide models with few heads learn at a lower rate; tried at the usual one, their heads did not settle.
RATES = {(2, 128): 0.0017, (4, 128): 0.0017}

PLANS = (
    *(
        Plan(h=h, d_model=d_model, steps=STEPS[d_model], share=SHARE, rate=RATES.get((h, d_model)))
        for d_model in (32, 64, 128, 256)
        for h in (1, 2, 4, 8, 16)
        if d_model // h >= 4 and (h, d_model) != (2, 256)
    ),
    Plan(h=2, d_model=256, steps=8_000, share=SHARE, rate=0.0008),
    Plan(h=8, d_model=512, steps=4_500, share=SHARE, rate=0.0006),
    # More of the loss for pronouns, and longer: without it the two hops stay blurred.
    Plan(architecture="standard", steps=12_000, share=0.9),
    Plan(architecture="one-layer", steps=STEPS[64], share=SHARE),
    *(Plan(h=h, language="zh", steps=STEPS[64], share=SHARE) for h in (1, 4, 8)),
    Plan(h=2, language="zh", steps=2 * STEPS[64], share=SHARE),
)


def name(plan: Plan) -> str:
    """What a model's file is called."""
    return f"{plan.architecture}-{plan.language}-h{plan.h}-d{plan.d_model}"


def path(plan: Plan) -> Path:
    return bundled.path(*FOLDER, f"{name(plan)}.safetensors")


@cache
def manifest() -> dict[str, dict]:
    """What is known of each shipped model, by its name: its plan, its scores, what made it."""
    return json.loads(bundled.path(*FOLDER, MANIFEST).read_text(encoding="utf-8"))
