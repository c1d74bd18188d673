"""Reads the attention of other models: the numbers that flow through it, and the matrices behind them."""
