"""A small SVG writer: text, lines, dots, and a logarithmic axis."""

import math
from html import escape

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
INK, FAINT, GRID, PAPER = "#222222", "#666666", "#e2e2e2", "#ffffff"
BLUE, ORANGE, GREY, PALE = "#0072b2", "#d55e00", "#7a7a7a", "#b5b5b5"
"""Blue and vermilion of Okabe and Ito: told apart with every kind of colour vision."""


class Drawing:
    """Elements in the order in which they are painted."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.elements = []

    def _add(self, tag, text=None, **attributes):
        spelled = "".join(f' {key.replace("_", "-")}="{_show(value)}"' for key, value in attributes.items())
        self.elements.append(f"<{tag}{spelled}/>" if text is None else f"<{tag}{spelled}>{escape(text)}</{tag}>")

    def text(self, x, y, text, size=13, fill=INK, anchor="start", weight="normal"):
        self._add("text", text, x=x, y=y, font_size=size, fill=fill, text_anchor=anchor, font_weight=weight)

    def line(self, x1, y1, x2, y2, stroke=GRID, width=1, dash=None):
        extra = {"stroke_dasharray": dash} if dash else {}
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width, **extra)

    def path(self, points, stroke, width=2, dash=None):
        extra = {"stroke_dasharray": dash} if dash else {}
        spelled = " ".join(f"{_show(x)},{_show(y)}" for x, y in points)
        joins = {"stroke_linejoin": "round", "stroke_linecap": "round"}
        self._add("polyline", points=spelled, fill="none", stroke=stroke, stroke_width=width, **joins, **extra)

    def box(self, x, y, width, height, fill, opacity=1, radius=0):
        self._add("rect", x=x, y=y, width=width, height=height, fill=fill, fill_opacity=opacity, rx=radius)

    def dot(self, x, y, radius, fill):
        self._add("circle", cx=x, cy=y, r=radius, fill=fill, stroke=PAPER, stroke_width=0.8)

    def render(self):
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_show(self.width)} {_show(self.height)}" '
            f'width="{_show(self.width)}" height="{_show(self.height)}" font-family="{FONT}" role="img">'
        )
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", paper, *self.elements, "</svg>"]) + "\n"


class LogAxis:
    """Numbers from `low` to `high` onto pixels from `start` to `end`."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self):
        """The powers of ten inside."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**k for k in range(first, last + 1)]


def _show(value):
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))
