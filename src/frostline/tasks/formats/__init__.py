"""One reader per file format, the Hub, and objects in memory."""
