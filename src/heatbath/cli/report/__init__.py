"""Report on a run: one value, laid out for the terminal, as Markdown and as HTML."""
