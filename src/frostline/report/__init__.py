"""Records → what people look at: terminal, Markdown, charts, files, live progress. Computes no result."""
