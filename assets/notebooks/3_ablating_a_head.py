# %% [markdown]
# # Ablating a head
#
# A weight shows where a head looks. Whether the answer needs it is another question, and only an experiment
# answers it: change the attention, run the model again, and look at the answer.

# %%
import mha_core as mha

text = "The animal didn't cross the street because it was too tired."
model = {"source": "mini", "h": 4, "d_model": 64}
trace = mha.trace(text, **model)
it = trace.tokens.index("it")
dict(trace.answers[it][:3])

# %% [markdown]
# ## One head off
#
# `Output(values=0.0)` replaces a head's output by zeros. In layer 1, head 0 looks at *animal*. Without it the
# answer is `[CLS]`, the first token, which stands for "no word of this sentence":

# %%
off = mha.edits.Output(values=0.0, layer=1, heads=0)
without = mha.trace(text, **model, edits=[off])
dict(without.answers[it][:3])

# %% [markdown]
# ## Every head off, one at a time
#
# The change of log p(answer). Below 0, the head helps the answer. A head near 0 may look at interesting
# words: this answer does not need it.

# %%
effects = mha.effects(trace, at="it")
effects

# %% [markdown]
# Zeros are an output that no later layer has ever seen. The gentler test replaces the output by its mean over
# other sentences, so that only what depends on this sentence is gone:

# %%
others = ["The dog ate the bone because it was hungry.", "He booked a room at a hotel."]
mha.effects(trace, at="it", baseline=others)

# %% [markdown]
# ## One look blocked
#
# `Hide` blocks one word from another, in all heads, as a mask does. With *animal* out of its sight, *it*
# becomes the street:

# %%
no_animal = mha.trace(text, **model, edits=[mha.edits.Hide(rows="it", keys="animal")])
dict(no_animal.answers[it][:3])

# %% [markdown]
# Blocked from *tired* it stays the animal, although heads do look at *tired*: *animal* is also what the model
# says when nothing speaks for the street.

# %%
no_tired = mha.trace(text, **model, edits=[mha.edits.Hide(rows="it", keys="tired")])
dict(no_tired.answers[it][:3])

# %% [markdown]
# ## A row of your own
#
# `Weights` replaces a row. If all of the weight goes to *street*, what does the model say?

# %%
row = [float(label == "street") for label in trace.tokens.labels]
forced = mha.trace(text, **model, edits=[mha.edits.Weights(values=row, layer=1, heads=0, rows="it")])
dict(forced.answers[it][:3])

# %% [markdown]
# The edits are part of the trace, of its captions and of the link that opens it in the app:

# %%
trace.view(head=0, token="it", beside=without)
