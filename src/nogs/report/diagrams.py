"""Our own diagrams of the hard-attention network (figure 1) and of the posterior (figure 3), as SVG text.

Each has colours for light and for dark screens.
"""

from __future__ import annotations

from html import escape

__all__ = ["network_diagram", "posterior_diagram"]

_STYLE = """
  .paper { fill: #ffffff; }
  text { fill: #1d2329; font: 15px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
  .small { font-size: 12.5px; fill: #59636e; }
  .symbol { font-style: italic; font-family: Georgia, "Liberation Serif", serif; font-size: 17px; }
  .line { stroke: #59636e; stroke-width: 1.7; fill: none; }
  .head { fill: #59636e; }
  .dash { stroke-dasharray: 5 4; }
  .box { stroke-width: 1.7; }
  .core { fill: #fbe8bd; stroke: #b07a00; }
  .place { fill: #d5ecfa; stroke: #2f86bd; }
  .embed { fill: #cfe0ef; stroke: #0072B2; }
  .answer { fill: #f9dccb; stroke: #D55E00; }
  .data { fill: #eceef0; stroke: #8a939c; }
  .seen { fill: #E69F00; fill-opacity: 0.85; }
  .cell { fill: none; stroke: #8a939c; stroke-width: 0.6; }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #171b20; }
    text { fill: #e6e9ec; }
    .small { fill: #a9b1ba; }
    .line { stroke: #a9b1ba; }
    .head { fill: #a9b1ba; }
    .core { fill: #5a4312; stroke: #E69F00; }
    .place { fill: #1f4a66; stroke: #56B4E9; }
    .embed { fill: #0d3a5c; stroke: #4f9fd0; }
    .answer { fill: #63301a; stroke: #e8793b; }
    .data { fill: #2a3138; stroke: #8a939c; }
  }"""


class _Drawing:
    """Boxes, arrows and words, collected as SVG."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title, self.parts = (
            (width, height),
            title,
            [f'<rect class="paper" width="{width}" height="{height}" rx="10"/>'],
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, *lines: str) -> None:
        """A rounded box with centred lines of text; the first is the name, the others are small."""
        self.parts.append(f'<rect class="box {kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>')
        top = y + height / 2 - 8.5 * (len(lines) - 1)
        for n, line in enumerate(lines):
            self.words(x + width / 2, top + 17 * n + 5, line, kind="small" if n else "")

    def words(self, x: float, y: float, text: str, *, kind: str = "", anchor: str = "middle") -> None:
        """A line of text; `_` begins a subscript up to the next space."""
        pieces = []
        for word in text.split(" "):
            base, lower, index = word.partition("_")
            sub = f'<tspan baseline-shift="sub" font-size="72%">{escape(index)}</tspan>' if lower else ""
            pieces.append(escape(base) + sub)
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{" ".join(pieces)}</text>')

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through points, with a head at the last."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = " dash" if dashed else ""
        self.parts.append(f'<path class="line{dash}" d="{path}" marker-end="url(#head)"/>')

    def image(
        self, x: float, y: float, side: float, seen: tuple[tuple[float, float], ...], *, masked: bool = False
    ) -> None:
        """A picture of side `side` with glimpses (row, column, in shares of it); `masked` leaves the rest empty."""
        self.parts.append(f'<rect class="box data" x="{x}" y="{y}" width="{side}" height="{side}" rx="3"/>')
        if not masked:
            for n in range(1, 5):
                at = n * side / 5
                self.parts.append(f'<path class="cell" d="M{x + at} {y} V{y + side} M{x} {y + at} H{x + side}"/>')
        for row, column in seen:
            part = side / 5
            self.parts.append(
                f'<rect class="seen" x="{x + column * side}" y="{y + row * side}" width="{part}" height="{part}"/>'
            )

    def svg(self) -> str:
        """The whole drawing."""
        width, height = self.size
        head = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="head" d="M0 0 L10 5 L0 10 z"/></marker></defs>'
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" width="{width}" '
            f'height="{height}">\n<title>{escape(self.title)}</title>\n<style>{_STYLE}\n</style>\n{head}\n{body}\n</svg>\n'
        )


def network_diagram() -> str:
    """The hard-attention network over two of its T steps: where to look, what is seen there, and the answer."""
    title = "The hard-attention network: a GRU core chooses where to look, sees a glimpse, and at last answers"
    d = _Drawing(980, 460, title)
    d.image(24, 344, 88, ((0.4, 0.2), (0.2, 0.6), (0.6, 0.4)))
    d.words(68, 450, "image", kind="small")
    d.box(24, 172, 88, 58, "core", "h_0", "learned")
    for step, (before, x) in enumerate(((112, 290), (440, 600)), start=1):
        gap = x - before
        up, down = before + 0.28 * gap, before + 0.72 * gap
        d.box(before + gap / 2 - 78, 44, 156, 58, "place", "location network", "chances on the grid")
        d.arrow((before, 201), (x, 201))
        d.arrow((up, 201), (up, 102))
        d.words(up - 14, 150, f"h_{step - 1}", kind="small")
        d.arrow((down, 102), (down, 309), (x, 309))
        d.words(down + 15, 150, f"l_{step}", kind="symbol")
        d.box(x, 172, 150, 58, "core", "GRU core", f"to its state h_{step}")
        d.box(x, 280, 150, 58, "embed", "glimpse embedder", "pixels and place")
        d.arrow((x + 75, 280), (x + 75, 230))
        d.arrow((112, 400), (x + 75, 400), (x + 75, 338))
        d.words(x + 84, 372, f"y_{step}", kind="symbol", anchor="start")
    d.words(124, 420, "of the image, only the glimpse y at l is read", kind="small", anchor="start")
    d.arrow((750, 201), (810, 201))
    d.words(780, 190, "… h_T", kind="small")
    d.box(810, 172, 146, 58, "answer", "classifier", "after T glimpses")
    d.arrow((883, 172), (883, 102))
    d.words(883, 88, "p(θ | h_T )", kind="symbol")
    d.box(810, 280, 146, 58, "data", "baseline", "for REINFORCE only")
    d.arrow((780, 201), (780, 309), (810, 309), dashed=True)
    return d.svg()


def posterior_diagram() -> str:
    """The posterior: the masked image through a CNN (the paper), or the glimpses as tokens through a transformer."""
    d = _Drawing(900, 360, "The posterior reads any set of glimpses: as a masked image, or as tokens")
    seen = ((0.4, 0.2), (0.2, 0.6), (0.6, 0.5))
    d.image(24, 124, 104, seen)
    d.words(76, 248, "image and l_1:t", kind="small")
    d.image(212, 34, 104, seen, masked=True)
    d.words(264, 160, "pixels seen, and the mask", kind="small")
    d.arrow((128, 150), (170, 150), (170, 86), (212, 86))
    d.box(392, 57, 170, 58, "embed", "DenseNet", "4 channels: RGB, mask")
    d.arrow((316, 86), (392, 86))
    d.words(477, 136, "kind: cnn (the paper's)", kind="small")
    for n, y in enumerate((212, 252, 292)):
        d.parts.append(f'<rect class="seen" x="216" y="{y}" width="26" height="26"/>')
        d.words(254, y + 18, f"y_{n + 1} , l_{n + 1}", kind="small", anchor="start")
        d.arrow((306, y + 13), (392, 252 + 10 * (n - 1)))
    d.words(262, 342, "a token each", kind="small")
    d.arrow((128, 202), (170, 202), (170, 265), (206, 265))
    d.box(392, 223, 170, 58, "embed", "transformer", "in no order, t = 0..T")
    d.words(477, 302, "kind: tokens (the default)", kind="small")
    d.box(630, 140, 124, 58, "core", "label head", "temperature by t")
    d.arrow((562, 86), (600, 86), (600, 160), (630, 160))
    d.arrow((562, 252), (600, 252), (600, 178), (630, 178))
    d.arrow((754, 169), (788, 169))
    d.words(838, 166, "g(θ | y, l)", kind="symbol")
    d.words(838, 188, "log-probabilities", kind="small")
    return d.svg()
