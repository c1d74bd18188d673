# %% [markdown]
# # A sentence and its heads
#
# A small trained model comes with Headscope: two layers of four heads, 64 numbers for each token. In this
# notebook you trace one sentence, find the head that answers "what does *it* refer to?", change one word,
# and check a number by hand.

# %%
import numpy as np

import mha_core as mha

text = "The animal didn't cross the street because it was too tired."
trace = mha.trace(text, source="mini", h=4, d_model=64)
trace

# %% [markdown]
# Every head of every layer, as a view that answers your mouse and keys. It also works as a file, offline:
# `trace.view().save("view.html")`.

# %%
trace.view(head=0, token="it")

# %% [markdown]
# ## Which head looks at the noun?
#
# What heads do, as a table: on average, how much weight goes to the previous, the next, the same and the
# first token; how spread out a row is; how far away a head looks.

# %%
mha.metrics(trace)

# %% [markdown]
# In the second layer (they count from 0), head 0 looks from *it* to *animal*:

# %%
it = trace.tokens.index("it")
row = trace.layers[1].weights(head=0, rows=[it])[0]
looked_at = trace.tokens.labels[row.argmax()]
looked_at, row.max()

# %% [markdown]
# The model says the same. This sentence shows nothing more than that: in another one, another head may do
# the work.

# %%
trace.answers[it][0]

# %% [markdown]
# ## Change one word
#
# *Too wide* rather than *too tired*: now the street is meant.

# %%
wide = mha.trace(text.replace("tired", "wide"), source="mini", h=4, d_model=64)
wide.answers[it][0]

# %%
trace.view(head=0, token="it", beside=wide)

# %% [markdown]
# ## One number, by hand
#
# A weight is a softmax over the scaled dot products of one query with all keys. Nothing else is needed, and
# you can check it:

# %%
layer = trace.layers[1]
q, k = layer.q[0], layer.k[0]
scores = q @ k.T / np.sqrt(layer.d_k)
exps = np.exp(scores - scores.max(axis=1, keepdims=True))
by_hand = exps / exps.sum(axis=1, keepdims=True)
difference = np.abs(by_hand - layer.weights(head=0)).max()
difference

# %% [markdown]
# `explain` does the same for any number of any matrix, down to its last product:

# %%
mha.explain(trace, "weights", layer=1, head=0, query="it", key="animal")

# %% [markdown]
# And `against_torch` compares the whole layer with `scaled_dot_product_attention`:

# %%
mha.against_torch(layer)
