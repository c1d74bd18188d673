"""Published heads: each is the one that its paper names."""

import pytest

from mha_core.analysis.published import published_heads

PRINTED = {  # Clark et al. count layers and heads from 1, Wang et al. from 0
    "google-bert/bert-base-uncased": lambda layer, head: f"{layer}-{head}",
    "openai-community/gpt2": lambda layer, head: f"{layer - 1}.{head - 1}",
    "sentence-transformers/all-MiniLM-L6-v2": lambda layer, head: f"L{layer}H{head}",
}


@pytest.mark.parametrize("model", published_heads())
def test_layers_and_heads_count_from_1_whatever_the_paper_does(model):
    for head in published_heads()[model]:
        assert head.printed == PRINTED[model](head.layer, head.head)
