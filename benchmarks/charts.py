"""Bar charts of a group: time relative to eager, and the line of copy bandwidth. The one place that imports matplotlib.

In: `Bar`s. Out: a PNG and an SVG. Rows are sorted by graftjit's ratio, the best on top. Each bar has its number, eager's the time of
a call; bars beyond the right edge end there with an arrow. The colours are of Okabe and Ito's palette, which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COLOURS = {
    "eager": "#A6A6A6",
    "graftjit": "#0072B2",
    "graftjit O2": "#56B4E9",
    "graftjit sink": "#56B4E9",
    "torch.compile": "#E69F00",
    "torch.compile reduce-overhead": "#D55E00",
    "torch.compile tuned": "#D55E00",
    "onnxruntime": "#CC79A7",
    "openvino": "#F0E442",
}
COPY_COLOUR = "#009E73"
LEAST_EDGE, MOST_EDGE = 1.35, 2.5


class NoMatplotlib(Exception):
    """The charts need the extra "bench"."""


@dataclass(frozen=True, slots=True)
class Bar:
    """`ratios`: system -> time over eager's, eager included; `copy`: the same of a copy of the bytes that must move."""

    label: str
    eager_us: float
    ratios: dict[str, float]
    copy: float | None = None


def duration(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def edge(bars: Sequence[Bar]) -> float:
    """The right end of the axis: all bars but those that would make the others small."""
    values = [value for bar in bars for value in bar.ratios.values()]
    return min(MOST_EDGE, max(LEAST_EDGE, max(values, default=1.0) * 1.12))


def draw(title: str, subtitle: str, bars: Sequence[Bar], stem: Path) -> list[Path]:
    """Writes `stem`.png and `stem`.svg, and gives their paths."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoMatplotlib("charts need matplotlib: pip install 'graftjit[bench]'") from error
    bars = sorted(bars, key=lambda bar: bar.ratios.get("graftjit", float("inf")), reverse=True)
    systems = [s for s in COLOURS if any(s in bar.ratios for bar in bars)]
    thick, gap = 0.24, 0.30
    height = len(systems) * thick + gap
    figure = Figure(figsize=(9.5, 1.75 + 0.75 * height * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    right = edge(bars)
    for row, bar in enumerate(bars):
        _row(axes, bar, systems, row * height, thick, right)
    axes.axvline(1.0, color="#555555", linewidth=0.8, zorder=1)
    axes.set_xlim(0, right * 1.04)
    axes.set_ylim(-height / 2 - 0.05, (len(bars) - 1) * height + height / 2 + 0.05)
    axes.set_yticks([row * height for row in range(len(bars))])
    axes.set_yticklabels([bar.label for bar in bars], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time relative to eager; shorter is faster", fontsize=9)
    axes.xaxis.grid(True, color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    axes.set_title(subtitle, fontsize=8.5, color="#555555", loc="left", pad=26)
    _legend(axes, systems, any(bar.copy is not None for bar in bars))
    return _save(figure, stem)


def _row(axes, bar: Bar, systems: Sequence[str], middle: float, thick: float, right: float) -> None:
    top = middle + (len(systems) - 1) * thick / 2
    for place, system in enumerate(systems):
        y = top - place * thick
        value = bar.ratios.get(system)
        if value is None:
            axes.text(
                0.012 * right,
                y,
                f"{system}: not measured",
                va="center",
                fontsize=7.5,
                color="#777777",
            )
            continue
        shown = min(value, right)
        axes.barh(y, shown, height=thick * 0.9, color=COLOURS[system], zorder=2)
        text = (
            duration(bar.eager_us)
            if system == "eager"
            else f"{value:.3g}"
            if value >= 10
            else f"{value:.2f}"
        )
        _number(axes, text, shown, y, right, value, system)
    if bar.copy is not None:
        half = len(systems) * thick / 2 + 0.03
        axes.plot([bar.copy] * 2, [middle - half, middle + half], color=COPY_COLOUR, linewidth=2.2,
                  solid_capstyle="butt", zorder=4)  # fmt: skip


def _number(
    axes, text: str, shown: float, y: float, right: float, value: float, system: str
) -> None:
    """Behind the bar; inside of it where it reaches the edge."""
    if shown > right * 0.95:
        arrow = " ▸" if value > right else ""
        axes.text(shown - 0.008 * right, y, text + arrow, va="center", ha="right", fontsize=7.5, zorder=5,
                  color="white" if system == "graftjit" else "black")  # fmt: skip
        return
    axes.text(shown + 0.008 * right, y, text, va="center", ha="left", fontsize=7.5, zorder=5,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8})  # fmt: skip


def _legend(axes, systems: Sequence[str], copies: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list = [Patch(color=COLOURS[system], label=system) for system in systems]
    if copies:
        handles.append(
            Line2D(
                [], [], color=COPY_COLOUR, linewidth=2.2, label="copy of the bytes that must move"
            )
        )
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(handles), frameon=False,
                fontsize=8.5, borderaxespad=0.2, handlelength=1.2, columnspacing=1.4)  # fmt: skip


def _save(figure, stem: Path) -> list[Path]:
    import matplotlib

    # Text stays text in SVG, and its ids are the same each time.
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "graftjit"}):
        figure.savefig(paths[0], dpi=150)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
