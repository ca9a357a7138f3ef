"""Chapters as files: HTML, Markdown, LaTeX, CSV and pictures."""
