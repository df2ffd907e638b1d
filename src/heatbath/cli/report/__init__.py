"""The report on a run: one value, shown in the terminal, as Markdown and as HTML."""
