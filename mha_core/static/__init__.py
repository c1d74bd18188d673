"""Headscope without a server: a page or a folder whose scripts compute the small models in the browser."""
