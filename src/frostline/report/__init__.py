"""Records → what people look at: terminal, Markdown, charts, files, live progress. It computes no result."""
