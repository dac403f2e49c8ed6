"""The frame of our web pages: their head, and words in them: escaped, printable, and nothing is loaded."""

from __future__ import annotations

from html import escape

from privcalc.certificate.text import plain

__all__ = ["HEAD", "clean"]

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$kind: $title</title>
<style>
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 1.8em }
.warning { border: 3px solid #b00; padding: .5em 1em; font-weight: bold }
li, p, td, pre { overflow-wrap: anywhere } pre { white-space: pre-wrap; background: #f4f4f4; padding: 1em }
img { max-width: 100% } figcaption { font-size: .9em; color: #555 } figure { margin: 1em 0 }
td, th { text-align: left; padding: .1em 1.5em .1em 0; vertical-align: top }
</style>
</head>
"""
"""The first lines of a template, which asks for ``kind`` and ``title``."""


def clean(value: object) -> str:
    """Words for a page, on one line."""
    return escape(plain(str(value)))
