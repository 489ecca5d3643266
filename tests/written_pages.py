"""The pages that gemmport writes, as tests read them."""

from __future__ import annotations

from html.parser import HTMLParser


class Seen(HTMLParser):
    """The elements of a page with their attributes, and the text in scripts, in styles and elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in ("script", "style"):  # newer parsers of Python have more such elements
            tag, before = self.raw[-1]
            self.raw[-1] = (tag, before + data)
        else:
            self.text += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def count(self, tag: str, **wanted: str) -> int:
        """How many elements of a kind have these attributes."""
        return sum(wanted.items() <= own.items() for own in self.attributes(tag))


def contrast(one: str, other: str) -> float:
    """WCAG 2.1, contrast ratio of two colours (#rrggbb)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """WCAG 2.1, relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
