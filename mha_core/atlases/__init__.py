"""The atlas: what each head of a model does over many texts, and with their words shuffled.

`run` measures the texts shard by shard and writes each shard into the atlas's folder; `summary` reduces the
shards to a few numbers for each head and measure; `Atlas` in `query` reads them.
"""
