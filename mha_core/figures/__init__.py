"""Pictures as values: a data frame goes in, a plotly Figure comes out. No torch, no web framework."""
