// The gap of one candidate against the baseline: bins with their interval, margin, window, and the last value labelled.
import { NO_LIBRARY, axisColours, bound, css, dragging, faint, finite, follow, lead, lineOf, savePng, signed, stepAxis, triangle, uPlot, whole } from "./chart_parts.js";
import { view } from "./view.js";

const HEIGHT = 280;
const PIXELS_A_BIN = 8;

export class GapChart {
  constructor(figure, jobId, tokensAStep) {
    this.figure = figure;
    this.holder = figure.querySelector(".plot");
    this.note = figure.querySelector(".note");
    this.readout = figure.querySelector(".readout");
    this.table = figure.querySelector("table");
    this.address = `/api/v1/jobs/${jobId}/gap?candidate=${encodeURIComponent(figure.dataset.candidate)}`;
    this.line = lineOf(Number(figure.dataset.colour));
    this.tokensAStep = tokensAStep;
    this.turn = 0;
    figure.querySelector("details").addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.plot?.setSize({ width: this.holder.clientWidth, height: HEIGHT })).observe(this.holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot?.redraw(true, true));
    figure.querySelector("[data-do=png]").addEventListener("click", () => this.plot && savePng(this.plot.ctx.canvas, `gap-${figure.dataset.candidate}`));
    follow(this);
  }

  /** What of the view needs other numbers from the server. */
  static asks(changes) {
    return ["from", "to"].some((name) => changes.includes(name));
  }

  /** Ask the server for the gap as it stands and draw it; `status` is the job's. */
  async load(status) {
    this.status = status;
    const turn = ++this.turn;
    const bins = Math.max(50, Math.min(400, Math.floor(this.holder.clientWidth / PIXELS_A_BIN)));
    const range = view.zoomed ? `&from=${view.from}&to=${view.to}` : "";
    const answer = await fetch(`${this.address}&bins=${bins}${range}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const gap = await answer.json();
    if (turn !== this.turn) return;
    this.gap = gap;
    await this.draw();
  }

  async draw() {
    const gap = this.gap;
    if (!gap) return;
    if (!gap.first_step.length) {
      this.note.textContent = view.zoomed
        ? "No gap here: the arms have no step in common in this range."
        : ["queued", "running"].includes(this.status)
          ? "No gap yet: it begins when a baseline run and a candidate run have a step in common."
          : "No gap: the job ended before a baseline run and a candidate run had a step in common.";
      this.plot?.setData([[], [], [], []]);
      return;
    }
    let Plot;
    try {
      Plot = await uPlot();
    } catch {
      this.note.textContent = NO_LIBRARY;
      return;
    }
    const x = gap.first_step.map((first, i) => (first + gap.last_step[i]) / 2);
    const data = [x, gap.mean.map(finite), gap.low.map(finite), gap.high.map(finite)];
    if (this.plot && this.unit === view.x) {
      this.plot.setData(data);
    } else {
      this.plot?.destroy();
      this.unit = view.x;
      this.plot = new Plot(this.options(Plot), data, this.holder);
      this.holder.querySelector("canvas").setAttribute("role", "img");
    }
    const last = data[1].findLastIndex((value) => value !== null);
    this.holder.querySelector("canvas").setAttribute(
      "aria-label",
      last < 0 ? "Gap chart without a finite value" : `Gap chart; last bin ${signed(data[1][last])} nats at step ${whole(gap.last_step[last])}`,
    );
    this.note.textContent = `Showing ${whole(x.length)} bins of ${whole(gap.common_steps)} common steps.${this.clippedNote()}${view.x === "time" ? " The gap compares equal steps, so its x axis stays the step." : ""}`;
    if (this.figure.querySelector("details").open) this.fillTable();
  }

  clippedNote() {
    const [low, high] = this.range();
    const out = this.gap.mean.filter((value) => value < low || value > high).length;
    const bad = this.gap.nonfinite_count;
    const outside = out ? ` ${whole(out)} bins lie outside the scale: triangles at the edge.` : "";
    return outside + (bad ? ` ${whole(bad)} steps are NaN or infinite, first ${whole(Math.min(...this.gap.nonfinite_candidate, ...this.gap.nonfinite_baseline))}: hollow triangles.` : "");
  }

  /** Room for the margin on both sides and for the data; the wild first tenth of training must not flatten the rest. */
  range() {
    const { gap } = this;
    const begin = gap.planned_steps / 10;
    const late = gap.first_step.findIndex((step) => step >= begin);
    const from = late < 0 ? 0 : late;
    const reach = (bounds, sign) => {
      const found = bounds.slice(from).filter((v) => typeof v === "number").map((v) => sign * v);
      found.sort((a, b) => a - b);
      const typical = found.length ? found[Math.floor(0.98 * (found.length - 1))] : 0;
      return 1.15 * Math.max(typical, 1.2 * (gap.margin_nats ?? 0), 1e-6);
    };
    return [-reach(gap.low, -1), reach(gap.high, 1)];
  }

  options(Plot) {
    const axis = axisColours();
    const drag = dragging(view, (plot, left, right) => [left, right].map((at) => Math.max(0, Math.round(plot.posToVal(at, "x")))));
    const percent = (value) => (100 * value) / (this.gap.level_nats ?? NaN);
    const narrow = this.holder.clientWidth < 500;
    const axes = [
      stepAxis(axis, view, this.tokensAStep),
      { ...axis, scale: "y", label: "gap, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 3) : "0")) },
    ];
    if (!narrow && this.gap.level_nats) {
      axes.push({ ...axis, scale: "percent", side: 1, label: "% of the loss", size: 56, labelSize: 20, grid: { show: false }, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 1) : "0")) });
    }
    return {
      width: this.holder.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: drag.cursor,
      scales: {
        x: { time: false, range: () => [view.from ?? 0, view.to ?? this.gap.planned_steps] },
        y: { range: () => this.range() },
        percent: { from: "y", range: (_, low, high) => [percent(low), percent(high)] },
      },
      axes,
      series: [
        {},
        { scale: "y", stroke: () => css(this.line), width: 2, points: { show: false } },
        { scale: "y", stroke: "transparent", points: { show: false } },
        { scale: "y", stroke: "transparent", points: { show: false } },
      ],
      bands: [{ series: [3, 2], fill: () => faint(this.line, 22) }],
      hooks: {
        setSelect: [drag.setSelect],
        drawClear: [(plot) => this.drawGround(plot)],
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  /** Below the data: the window that the verdict reads. */
  drawGround(plot) {
    if (!this.gap.window) return;
    const { ctx, bbox } = plot;
    const [left, right] = this.gap.window.map((step) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, plot.valToPos(step, "x", true))));
    ctx.save();
    ctx.fillStyle = css("--chart-window");
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
    ctx.restore();
  }

  /** Above the data: zero, margin, triangles for what is off the scale, and the last value. */
  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const { gap } = this;
    const level = (value, dash, colour) => {
      const y = plot.valToPos(value, "y", true);
      ctx.setLineDash(dash);
      ctx.strokeStyle = colour;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    };
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    level(0, [], css("--quiet"));
    if (gap.margin_nats) {
      const dash = [8, 4, 2, 4].map((part) => part * devicePixelRatio);
      for (const side of [1, -1]) level(side * gap.margin_nats, dash, css("--chart-margin"));
    }
    ctx.setLineDash([]);
    ctx.fillStyle = css(this.line);
    const [low, high] = this.range();
    gap.mean.forEach((value, i) => {
      if (value < low || value > high) triangle(plot, plot.data[0][i], { down: value < low });
    });
    ctx.strokeStyle = css("--fail");
    for (const step of [...gap.nonfinite_candidate, ...gap.nonfinite_baseline]) triangle(plot, step, { hollow: true });
    const last = plot.data[1].findLastIndex((value) => value !== null);
    if (last >= 0) {
      ctx.font = `600 ${13 * devicePixelRatio}px system-ui, sans-serif`;
      const x = plot.valToPos(plot.data[0][last], "x", true);
      const y = plot.valToPos(Math.max(low, Math.min(high, plot.data[1][last])), "y", true);
      const text = signed(plot.data[1][last]);
      const fits = x + ctx.measureText(text).width + 8 * devicePixelRatio < bbox.left + bbox.width;
      ctx.textAlign = fits ? "left" : "right";
      ctx.textBaseline = "bottom";
      const place = [text, x + (fits ? 6 : -6) * devicePixelRatio, y - 4 * devicePixelRatio];
      // A halo in the page's colour keeps the number readable above the band.
      ctx.lineWidth = 4 * devicePixelRatio;
      ctx.lineJoin = "round";
      ctx.strokeStyle = css("--paper");
      ctx.strokeText(...place);
      ctx.fillText(...place);
    }
    ctx.restore();
  }

  /** Another chart's cursor moved. */
  pointAt(step) {
    if (!this.plot) return;
    const left = step === null ? -10 : this.plot.valToPos(step, "x");
    this.plot.setCursor({ left, top: left < 0 ? -10 : 10 });
  }

  showReadout(plot) {
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const isOutside = i == null || this.gap.first_step[i] === undefined;
    lead(this, isOutside ? null : plot.data[0][i]);
    if (isOutside) {
      this.readout.textContent = "";
      return;
    }
    const { gap } = this;
    const steps = `steps ${whole(gap.first_step[i])} to ${whole(gap.last_step[i])}`;
    const value = gap.mean[i];
    this.readout.textContent =
      typeof value === "number"
        ? `${steps}: ${signed(value)} nats${gap.level_nats ? ` (${signed((100 * value) / gap.level_nats, 2)} %)` : ""}, ${bound(gap.low[i])} to ${bound(gap.high[i])}`
        : `${steps}: ${value}`;
  }

  fillTable() {
    if (!this.gap || !this.figure.querySelector("details").open) return;
    const head = "<thead><tr><th>Steps</th><th class=number>Gap, nats</th><th class=number>Interval</th></tr></thead>";
    const rows = this.gap.first_step.map(
      (first, i) =>
        `<tr><td>${whole(first)} to ${whole(this.gap.last_step[i])}</td><td class=number>${bound(this.gap.mean[i])}</td>` +
        `<td class=number>${bound(this.gap.low[i])} to ${bound(this.gap.high[i])}</td></tr>`,
    );
    this.table.innerHTML = `${head}<tbody>${rows.join("")}</tbody>`;
  }
}
