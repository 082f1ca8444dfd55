"""The two pictures: time relative to softmax, and time against d."""

from .svg import BLUE, FAINT, GREY, GRID, INK, ORANGE, PALE, PAPER, Drawing, LogAxis
from .workloads import INPUTS, label

ROWS = [
    ("forward pass, relative to torch.softmax", None),
    ("memcpy of the scores", "memcpy"),
    ("softmax", "softmax forward"),
    ("sparsemax", "sparsemax forward"),
    ("1.5-entmax", "entmax15 forward"),
    ("α-entmax, α = 1.25", "entmax α=1.25 forward"),
    ("α-entmax, α = 1.75", "entmax α=1.75 forward"),
    ("α-entmax, α = 3", "entmax α=3 forward"),
    ("ev-softmax", "ev-softmax forward"),
    ("sq-pnorm-max", "sq-pnorm-max forward"),
    ("fusedmax", "fusedmax forward"),
    ("oscarmax", "oscarmax forward"),
    ("sparsemax, entmax package", "sparsemax (entmax package)"),
    ("1.5-entmax, entmax package", "entmax15 (entmax package)"),
    ("α = 1.25, entmax package", "entmax_bisect (entmax package)"),
    ("backward pass, relative to torch softmax’s backward", None),
    ("sparsemax", "sparsemax backward"),
    ("1.5-entmax", "entmax15 backward"),
    ("α = 1.25, with α-gradient", "entmax α=1.25 backward with α-gradient"),
    ("loss with gradient, relative to cross_entropy", None),
    ("softmax", "softmax loss"),
    ("sparsemax", "sparsemax loss"),
    ("1.5-entmax", "entmax15 loss"),
    ("α = 1.25", "entmax α=1.25 loss"),
]
"""Label and operation of every line; without an operation it is a heading."""

LEFT, RIGHT, TOP, STEP, HEADING = 230, 120, 118, 30, 46
WIDTH = 980


def ratios(results):
    """Time relative to softmax on one thread, or on the fewest that were measured."""
    counts = sorted({cell["threads"] for cell in results["cells"]})
    lines = _lines(results["cells"], counts[0]) if counts else []
    if not lines:
        return None
    values = [cell["ratio"] for _, cells in lines for cell in cells]
    height = TOP + sum(STEP if cells else HEADING for _, cells in lines) + 62
    axis = LogAxis(min(0.08, min(values) * 0.9), max(12, max(values) * 1.1), LEFT, WIDTH - RIGHT)
    drawing = Drawing(WIDTH, height, "Time of sparse probability mappings relative to softmax")
    threads = "one thread" if counts[0] == 1 else f"{counts[0]} threads"
    drawing.text(24, 34, "Time relative to softmax: left of the line is faster", 20, weight="bold")
    drawing.text(24, 57, f"float32, {threads}, {results['machine']['processor']}, PyTorch {results['machine']['torch']}, "
                 f"entmax {results['machine']['entmax']}; {results['date']}", 13, FAINT)
    _legend(drawing, results["cells"])
    _axis(drawing, axis, TOP - 4, height - 58)
    y = TOP
    for text, cells in lines:
        if cells:
            _line(drawing, axis, y + STEP / 2, text, cells)
            y += STEP
        else:
            drawing.box(20, y + HEADING - 30, 16 + 7.2 * len(text), 22, PAPER)
            drawing.text(24, y + HEADING - 14, text, 14, weight="bold")
            y += HEADING
    return drawing.render()


def _lines(cells, threads):
    """The lines for which there is something to show, headings before them."""
    by_operation = {}
    for cell in cells:
        if cell["threads"] == threads:
            by_operation.setdefault(cell["operation"], []).append(cell)
    lines, heading = [], None
    for text, operation in ROWS:
        if operation is None:
            heading = text
        elif operation in by_operation:
            if heading:
                lines.append((heading, []))
                heading = None
            lines.append((text, by_operation[operation]))
    return lines


def _legend(drawing, cells):
    shapes = sorted({tuple(cell["shape"]) for cell in cells if cell["group"] == "forward"}, key=lambda s: s[1])
    x, y = 24, 84
    for colour, text in ((BLUE, "parsimax"), (ORANGE, "entmax package"), (GREY, "memcpy")):
        drawing.dot(x + 5, y - 4.5, 5, colour)
        drawing.text(x + 16, y, text, 13)
        x += 34 + 6.8 * len(text)
    drawing.text(x + 10, y, f"dots: scores N(0, 1), from {label(shapes[0])} (top) to {label(shapes[-1])} (bottom)"
                 if shapes else "dots: scores N(0, 1)", 13, FAINT)
    drawing.text(x + 10, y + 18, "band: every input, the worst included", 13, FAINT)


def _axis(drawing, axis, top, bottom):
    for decade in axis.decades():
        for step in (1, 2, 5):
            value = decade * step
            if value > axis.high or value == 1:
                continue
            drawing.line(axis(value), top, axis(value), bottom, GRID, 1.2 if step == 1 else 0.6)
            if step == 1 or axis.high / axis.low < 300:
                drawing.text(axis(value), bottom + 18, f"{value:g}", 12, FAINT, "middle")
    drawing.line(axis(1), top, axis(1), bottom, INK, 2)
    drawing.text(axis(1), bottom + 18, "1", 12, INK, "middle", "bold")
    drawing.text(axis(1), bottom + 40, "softmax", 13, INK, "middle", "bold")
    drawing.text(axis(1) - 44, bottom + 40, "← faster", 13, FAINT, "end")
    drawing.text(axis(1) + 44, bottom + 40, "slower →", 13, FAINT)


def _line(drawing, axis, y, text, cells):
    colour = ORANGE if "package" in text else GREY if text.startswith("memcpy") else BLUE
    values = [cell["ratio"] for cell in cells]
    low, high = min(values), max(values)
    drawing.text(LEFT - 14, y + 4.5, text, 13, anchor="end")
    drawing.box(axis(low) - 4, y - 11, axis(high) - axis(low) + 8, 22, colour, 0.18, 5)
    plain = sorted((cell for cell in cells if cell["input"] == "normal"), key=lambda cell: cell["shape"][1])
    for index, cell in enumerate(plain):
        spread = 15 * (index / (len(plain) - 1) - 0.5) if len(plain) > 1 else 0
        drawing.dot(axis(cell["ratio"]), y + spread, 4, colour)
    ends = dict.fromkeys((_short(low), _short(high)))
    drawing.text(WIDTH - RIGHT + 14, y + 4.5, " – ".join(ends), 13, FAINT)


def _short(value):
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 236, 176, 4


def scaling(results):
    """Time a row against d, one panel a mapping, all on the same axes."""
    curves = [curve for curve in results["scaling"] if curve["verdict"] != "not measured"]
    if not curves:
        return None
    points = [point for curve in curves for series in curve["inputs"].values() for point in series]
    widths, times = [d for d, _ in points], [seconds for _, seconds in points]
    lines = -(-len(curves) // COLUMNS)
    width, height = 64 + COLUMNS * PANEL_WIDTH + 8, 112 + lines * (PANEL_HEIGHT + 64)
    drawing = Drawing(width, height, "Time for a row against its width")
    drawing.text(24, 34, "Time for a row of d scores", 20, weight="bold")
    drawing.text(24, 57, "float32, one thread; 2^20 scores at every width, so memory plays the same part; "
                 "O(d log d): slope after dividing by log d", 13, FAINT)
    x = 24
    for colour, dash, text in ((BLUE, None, "N(0, 1)"), (ORANGE, None, "input with the steepest growth"),
                               (PALE, None, "other inputs"), (FAINT, "2 4", "exactly in proportion to d")):
        drawing.line(x, 78, x + 24, 78, colour, 2.5, dash)
        drawing.text(x + 32, 82.5, text, 13)
        x += 60 + 6.2 * len(text)
    for index, curve in enumerate(curves):
        left = 64 + (index % COLUMNS) * PANEL_WIDTH
        top = 128 + (index // COLUMNS) * (PANEL_HEIGHT + 64)
        x_axis = LogAxis(min(widths), max(widths), left, left + PANEL_WIDTH - 28)
        y_axis = LogAxis(min(times) / 1.5, max(times) * 1.5, top + PANEL_HEIGHT, top)
        _panel(drawing, curve, x_axis, y_axis, first=index % COLUMNS == 0)
    return drawing.render()


def _panel(drawing, curve, x_axis, y_axis, first):
    left, right, bottom, top = x_axis.start, x_axis.end, y_axis.start, y_axis.end
    for seconds in y_axis.decades():
        drawing.line(left, y_axis(seconds), right, y_axis(seconds))
        if first:
            drawing.text(left - 8, y_axis(seconds) + 4, _time(seconds), 12, FAINT, "end")
    for exponent in (6, 10, 15, 20):
        drawing.line(x_axis(2**exponent), bottom, x_axis(2**exponent), bottom + 4, FAINT)
        name = {6: "64", 10: "1 Ki", 15: "32 Ki", 20: "1 Mi"}[exponent]
        drawing.text(x_axis(2**exponent), bottom + 18, name, 12, FAINT, "middle")
    drawing.line(left, bottom, right, bottom, FAINT)
    _guide(drawing, curve["inputs"]["normal"] if "normal" in curve["inputs"] else [], x_axis, y_axis)
    order = sorted(curve["inputs"], key=lambda name: (name == "normal", name == curve["worst"]))
    for name in order:
        colour = BLUE if name == "normal" else ORANGE if name == curve["worst"] else PALE
        drawing.path([(x_axis(d), y_axis(seconds)) for d, seconds in curve["inputs"][name]], colour, 2)
    drawing.text(left, top - 20, curve["mapping"], 14, weight="bold")
    worst = "" if curve["worst"] == "normal" else f" ({INPUTS[curve['worst']][0]})"
    drawing.text(left, top - 4, f"{curve['cost']}, slope {curve['slope']:.2f}{worst}", 12, FAINT)


def _guide(drawing, series, x_axis, y_axis):
    """A line of slope 1 through the middle of the series."""
    if not series:
        return
    middle_d, middle = series[len(series) // 2]
    ends = [(d, middle * d / middle_d) for d in (x_axis.low, x_axis.high)]
    inside = [(d, min(max(seconds, y_axis.low), y_axis.high)) for d, seconds in ends]
    inside = [(seconds / middle * middle_d, seconds) for _, seconds in inside]
    drawing.path([(x_axis(d), y_axis(seconds)) for d, seconds in inside], FAINT, 1.5, "2 4")


def _time(seconds):
    for limit, unit, factor in ((9e-7, "ns", 1e9), (9e-4, "µs", 1e6), (9e-1, "ms", 1e3)):
        if seconds < limit:
            return f"{seconds * factor:g} {unit}"
    return f"{seconds:g} s"
