// An interactive chart: drag, wheel, touch and keys change the view of all charts, and all cursors point at the same step.
import { NO_LIBRARY, fillNumbers, save, savePng, uPlot } from "./chart_parts.js";
import { followFingers } from "./fingers.js";
import { WIDE } from "./line_labels.js";
import { view } from "./view.js";

const STEP_OF_A_KEY = 0.25;
const ZOOM_OF_A_KEY = 0.5;
const ZOOM_OF_A_PIXEL = 1.002;

/** A text as a field of CSV that no spreadsheet takes for a formula. */
const csvText = (text) => (/^[=+\-@]|[",\n]/.test(text) ? `"${text.replace(/^(?=[=+\-@])/, "'").replaceAll('"', '""')}"` : text);

const charts = new Set();
let leading = false;

/** Base of the charts. A subclass draws with `show` and has `numbers()` (headings and rows of its table) and, for a CSV of its own, `columns()`. */
export class Chart {
  constructor(figure, height, name) {
    this.figure = figure;
    this.height = height;
    this.name = name;
    this.holder = figure.querySelector(".plot");
    this.note = figure.querySelector(".note[role=status]");
    this.details = figure.querySelector("details");
    this.turn = 0;
    this.reserve(true);
    this.details.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.plot?.setSize({ width: this.holder.clientWidth, height })).observe(this.holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot?.redraw(true, true));
    figure.querySelector("[data-do=png]").addEventListener("click", () => this.plot && savePng(this.plot.ctx.canvas, name));
    figure.querySelector("[data-do=csv]")?.addEventListener("click", () => this.saveCsv());
    this.holder.addEventListener("mousemove", () => { this.follows = false; }, { capture: true });
    this.holder.addEventListener("keydown", (event) => this.press(event));
    this.holder.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    followFingers(this);
    charts.add(this);
  }

  /** What was asked for, or null if something else was meanwhile. */
  async latest(asked) {
    const turn = ++this.turn;
    const content = await asked;
    return turn === this.turn ? content : null;
  }

  /** Draw data; the plot stays if `shape` is the same. False if the chart library is missing, which the note reports. */
  async show(data, shape, options) {
    let Plot;
    try {
      Plot = await uPlot();
    } catch {
      this.note.textContent = NO_LIBRARY;
      return false;
    }
    shape = JSON.stringify([view.x, view.logx, shape]);
    if (this.plot && this.shape === shape) {
      this.plot.setData(data);
    } else {
      const left = this.plot?.cursor.left ?? -10;
      this.clear();
      this.reserve(true);
      this.shape = shape;
      this.plot = new Plot({ width: this.holder.clientWidth, height: this.height, legend: { show: false }, ...options() }, data, this.holder);
      // A mouse that rests on the chart goes on reading.
      if (left >= 0) queueMicrotask(() => this.plot?.setCursor({ left, top: 10 }));
    }
    if (this.details.open) this.fillTable();
    // The first drawing, for benchmarks/charts.py.
    if (!performance.getEntriesByName("chart").length) requestAnimationFrame(() => performance.mark("chart"));
    return true;
  }

  /** Keep the room of the plot before it is drawn, so that nothing below moves when it is. */
  reserve(isDrawn) {
    this.holder.style.minHeight = isDrawn ? `${this.height}px` : "";
  }

  /** Nothing to draw. */
  clear() {
    this.reserve(false);
    this.plot?.destroy();
    this.plot = null;
  }

  /** Describe the canvas for screen readers. */
  describe(text) {
    const canvas = this.holder.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", text);
  }

  /** The cursor of uPlot's options: a drag zooms, with Shift it pans; a double click resets. `stepsOf(low, high)` are the steps between two x. */
  moving(stepsOf) {
    return {
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        bind: {
          dblclick: () => () => { view.set({ from: null, to: null }); return null; },
          mousedown: (_plot, _target, handler) => (event) => (event.shiftKey && event.button === 0 ? this.grab(event) : handler(event)),
        },
      },
      setSelect: (plot) => {
        const { left, width } = plot.select;
        if (width < 4) return;
        const [from, to] = stepsOf(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        // A plot that was replaced while the button was down had other steps under the same places.
        if (plot === this.plot && to > from) view.set({ from, to });
      },
    };
  }

  /** Follow the pointer until the button is let go. */
  grab(event) {
    let last = event.clientX;
    const move = (moved) => {
      const share = (last - moved.clientX) / this.plot.over.clientWidth;
      last = moved.clientX;
      view.pan(share);
    };
    const drop = () => {
      removeEventListener("mousemove", move);
      removeEventListener("mouseup", drop);
    };
    addEventListener("mousemove", move);
    addEventListener("mouseup", drop);
    return null;
  }

  /** A wheel with Ctrl (or a pinch on a touchpad, which browsers report as that) zooms; without it, the page scrolls. */
  wheel(event) {
    if (!this.plot || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const box = this.plot.over.getBoundingClientRect();
    view.zoom(this.shareOf(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width))), ZOOM_OF_A_PIXEL ** event.deltaY);
  }

  /** The position in the view at a share of the plot's width. */
  shareOf(width) {
    return width;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.plot) return;
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side && event.shiftKey) view.pan(side * STEP_OF_A_KEY);
    else if (side) this.move(side);
    else if (event.key === "+" || event.key === "=") view.zoom(this.shareOf(0.5), ZOOM_OF_A_KEY);
    else if (event.key === "-") view.zoom(this.shareOf(0.5), 1 / ZOOM_OF_A_KEY);
    else if (event.key === "0" || event.key === "Escape") view.set({ from: null, to: null });
    else return;
    event.preventDefault();
  }

  /** Move the cursor to the next place with a value; without a cursor, begin at the end. */
  move(side) {
    const x = this.plot.data[0];
    const { min, max } = this.plot.scales.x;
    const at = this.plot.cursor.left >= 0 ? this.plot.cursor.idx : null;
    this.follows = false;
    let next = at == null ? (side > 0 ? x.findIndex((value) => value >= min) : x.findLastIndex((value) => value <= max)) : at + side;
    // On a time axis, rows of several runs may share a place.
    while (at != null && x[next] === x[at]) next += side;
    if (x[next] >= min && x[next] <= max) this.plot.setCursor({ left: this.plot.valToPos(x[next], "x"), top: 10 });
  }

  /** This chart's cursor moved to a step (null: it left); those of the other charts follow. One that followed stays in place with new data. */
  lead(step) {
    if (leading || this.follows) return;
    leading = true;
    for (const other of charts) if (other !== this) other.pointAt(step);
    leading = false;
  }

  pointAt(step) {
    if (!this.plot) return;
    this.follows = step !== null;
    const left = step === null ? -10 : this.plot.valToPos(this.xOf(step), "x");
    this.plot.setCursor({ left, top: left < 0 ? -10 : 10 });
  }

  /** On a narrow screen, where a tip covers what is below the chart, only the chart that is read has one. */
  get hidesTip() {
    return this.follows && this.holder.clientWidth < WIDE;
  }

  /** Put the tip next to the cursor, on the side with more room. */
  placeTip(plot) {
    const room = plot.over.clientWidth;
    const { left } = plot.cursor;
    const at = plot.over.offsetLeft + (left > room / 2 ? left - this.tip.offsetWidth - 12 : left + 12);
    this.tip.style.left = `${Math.max(0, Math.min(at, this.holder.clientWidth - this.tip.offsetWidth))}px`;
  }

  /** Where a step stands on the x axis; a log axis begins at 1. */
  xOf(step) {
    return view.logx ? Math.max(1, step) : step;
  }

  /** The range of the x scale, in steps. */
  stepRange() {
    return view.shown.map((step) => this.xOf(step));
  }

  fillTable() {
    const rows = this.details.open && this.numbers();
    if (rows) fillNumbers(this.figure.querySelector("table"), ...rows);
  }

  /** The drawn numbers, with all digits. */
  saveCsv() {
    const columns = this.columns();
    if (!columns) return;
    const names = Object.keys(columns);
    const rows = columns[names[0]].map((_, i) => names.map((name) => columns[name][i] ?? "").join(","));
    save(new Blob([`${[names.map(csvText).join(","), ...rows].join("\n")}\n`], { type: "text/csv" }), `${this.name}.csv`);
  }
}
