// The gap of one candidate against the baseline: bins with their interval, margin, window, and the last value labelled.

const HEIGHT = 280;
const TRIANGLE = 5;
const PIXELS_A_BIN = 8;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const signed = (value, places = 4) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(places);
const whole = (value) => value.toLocaleString("en");
const finite = (value) => (typeof value === "number" ? value : null);

let library;
/** The chart library, once; a missing one is said on the page. */
function uPlot() {
  library ??= import("/static/vendor/uplot/uPlot.esm.js").then((module) => module.default);
  return library;
}

export class GapChart {
  constructor(figure, jobId) {
    this.figure = figure;
    this.holder = figure.querySelector(".plot");
    this.note = figure.querySelector(".note");
    this.readout = figure.querySelector(".readout");
    this.table = figure.querySelector("table");
    this.address = `/api/v1/jobs/${jobId}/gap?candidate=${encodeURIComponent(figure.dataset.candidate)}`;
    this.line = `--chart-line-${((Number(figure.dataset.colour) - 1) % 4) + 1}`;
    figure.querySelector("details").addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.plot?.setSize({ width: this.holder.clientWidth, height: HEIGHT })).observe(this.holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  /** Ask the server for the gap as it stands and draw it; `status` is the job's. */
  async load(status) {
    this.status = status;
    const bins = Math.max(50, Math.min(400, Math.floor(this.holder.clientWidth / PIXELS_A_BIN)));
    const answer = await fetch(`${this.address}&bins=${bins}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    this.gap = await answer.json();
    await this.draw();
  }

  async draw() {
    const gap = this.gap;
    if (!gap.first_step.length) {
      this.note.textContent = ["queued", "running"].includes(this.status)
        ? "No gap yet: it begins when a baseline run and a candidate run have a step in common."
        : "No gap: the job ended before a baseline run and a candidate run had a step in common.";
      return;
    }
    let Plot;
    try {
      Plot = await uPlot();
    } catch {
      this.note.textContent = "The chart library is not installed: run `make node_modules/.installed` on the server. The numbers are below.";
      return;
    }
    const x = gap.first_step.map((first, i) => (first + gap.last_step[i]) / 2);
    const data = [x, gap.mean.map(finite), gap.low.map(finite), gap.high.map(finite)];
    if (this.plot) {
      this.plot.setData(data);
    } else {
      this.plot = new Plot(this.options(Plot), data, this.holder);
      this.holder.querySelector("canvas").setAttribute("role", "img");
    }
    const last = data[1].findLastIndex((value) => value !== null);
    this.holder.querySelector("canvas").setAttribute(
      "aria-label",
      last < 0 ? "Gap chart without a finite value" : `Gap chart; last bin ${signed(data[1][last])} nats at step ${whole(gap.last_step[last])}`,
    );
    this.note.textContent = `Showing ${whole(x.length)} bins of ${whole(gap.common_steps)} common steps.${this.clippedNote()}`;
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
    const axis = { stroke: () => css("--quiet"), grid: { stroke: () => css("--chart-grid"), width: 1 }, ticks: { stroke: () => css("--chart-grid") } };
    const percent = (value) => (100 * value) / (this.gap.level_nats ?? NaN);
    const narrow = this.holder.clientWidth < 500;
    const axes = [
      { ...axis, label: "step", labelSize: 20, size: 34, values: (_, ticks) => ticks.map(whole) },
      { ...axis, scale: "y", label: "gap, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 3) : "0")) },
    ];
    if (!narrow && this.gap.level_nats) {
      axes.push({ ...axis, scale: "percent", side: 1, label: "% of the loss", size: 56, labelSize: 20, grid: { show: false }, values: (_, ticks) => ticks.map((v) => (v ? signed(v, 1) : "0")) });
    }
    return {
      width: this.holder.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { setScale: false, x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: false, range: () => [0, this.gap.planned_steps] },
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
      bands: [{ series: [3, 2], fill: () => this.faint() }],
      hooks: {
        drawClear: [(plot) => this.drawGround(plot)],
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  faint() {
    const [r, g, b] = css(this.line).match(/\w\w/g).map((part) => parseInt(part, 16));
    return `rgb(${r} ${g} ${b} / 22%)`;
  }

  /** Below the data: the window that the verdict reads. */
  drawGround(plot) {
    if (!this.gap.window) return;
    const { ctx, bbox } = plot;
    const [left, right] = this.gap.window.map((step) => plot.valToPos(step, "x", true));
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
      if (value < low || value > high) this.triangle(plot, plot.data[0][i], value < low);
    });
    ctx.strokeStyle = css("--fail");
    for (const step of [...gap.nonfinite_candidate, ...gap.nonfinite_baseline]) this.triangle(plot, step, false, true);
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

  triangle(plot, step, down, hollow = false) {
    const { ctx, bbox } = plot;
    const size = TRIANGLE * devicePixelRatio;
    const x = plot.valToPos(step, "x", true);
    const tip = down ? bbox.top + bbox.height : bbox.top;
    const base = down ? tip - 1.6 * size : tip + 1.6 * size;
    ctx.beginPath();
    ctx.moveTo(x, tip);
    ctx.lineTo(x - size, base);
    ctx.lineTo(x + size, base);
    ctx.closePath();
    if (hollow) ctx.stroke();
    else ctx.fill();
  }

  showReadout(plot) {
    const i = plot.cursor.idx;
    if (i == null || this.gap.first_step[i] === undefined) {
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

  redraw() {
    this.plot?.redraw(true, true);
  }
}

const bound = (value) => (typeof value === "number" ? signed(value) : String(value));
