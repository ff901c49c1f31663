// One statistic of every layer against the step: rows are layers in model order. Candidate minus baseline in colours that part at zero;
// a run's own values in viridis.
import { css, save, savePng, ticks, whole } from "./chart_parts.js";
import { view } from "./view.js";

// Viridis (CC0, matplotlib) at nine equal distances: even to the eye, and readable with any colour vision.
const VIRIDIS = ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"].map((hex) => hex.match(/../g).map((part) => parseInt(part, 16)));
// Of differences: blue below zero, vermilion above, and the paper's side of grey at zero; told apart with any colour vision.
const BELOW = [0, 90, 156];
const ABOVE = [196, 78, 0];
const AT_ZERO = { light: [247, 247, 247], dark: [44, 48, 53] };
const HATCH = 5; // pixels between the lines of a cell without a number
const NAMES = {
  amax: ["largest magnitude", ""],
  underflow_share: ["share of values that become zero", "of 1"],
  saturation_share: ["share of values beyond the largest of their scale", "of 1"],
  snr_db: ["signal to quantization noise", "dB"],
  scale_octaves_10: ["block scales below the largest, 10 % quantile", "octaves"],
  scale_octaves_50: ["block scales below the largest, median", "octaves"],
  scale_octaves_90: ["block scales below the largest, 90 % quantile", "octaves"],
  scale_octaves: ["from the smallest block scale to the largest", "octaves"],
  zero_scale_share: ["share of blocks with scale zero", "of 1"],
  seen_share: ["share of the rows that are looked at", "of 1"],
  nonfinite: ["values that are NaN or infinite", ""],
  cosine: ["cosine of the angle to the gradient without quantization", ""],
  bias: ["length along the gradient without quantization, less 1", ""],
  grad_norm: ["gradient norm of the layer", ""],
};
const OPERANDS = {
  x: "x, for fprop",
  kernel: "kernel, for fprop",
  grad: "grad, for dgrad",
  x_wgrad: "x, for wgrad",
  grad_wgrad: "grad, for wgrad",
  kernel_grad: "gradient of the kernel",
};
const PERIOD_MS = 15_000;
const NO_NUMBER = 110; // pixels of the legend of a cell without a number
const LABELS = "12px system-ui, sans-serif";

export class HeatMap {
  constructor(figure, article) {
    this.figure = figure;
    this.article = article;
    this.canvas = figure.querySelector(".heat");
    this.scale = figure.querySelector(".scale");
    this.note = figure.querySelector(".note");
    this.form = figure.querySelector("form");
    this.details = figure.querySelector("details");
    this.turn = 0;
    this.drawnAt = -Infinity;
    const option = [...this.form.elements.run.options].find((option) => option.value === view.heat.run);
    if (option) option.selected = true;
    this.form.elements.of.value = view.heat.of === "values" ? "values" : "";
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", () => {
      const { run, of, operand, statistic } = this.form.elements;
      const there = this.content?.recorded.of_operand[operand.value] ?? [];
      const has = statistic.value === "grad_norm" || !there.length || there.includes(statistic.value);
      view.set({ heat: { run: run.value, of: of.value || null, operand: operand.value, statistic: has ? statistic.value : there[0] } });
    });
    this.details.addEventListener("toggle", () => this.fillTable());
    for (const kind of ["pointermove", "pointerdown"]) this.canvas.addEventListener(kind, (event) => this.showValue(event));
    // A finger is lifted to read what it covered.
    this.canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") figure.querySelector(".readout").textContent = ""; });
    figure.querySelector("[data-do=png]").addEventListener("click", () => savePng(this.canvas, this.fileName()));
    figure.querySelector("[data-do=csv]").addEventListener("click", () => this.saveCsv());
    new ResizeObserver(() => this.draw()).observe(figure.querySelector(".plot"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** What of the view needs other numbers from the server. */
  static needsData(changes) {
    return ["from", "to", "heat"].some((name) => changes.includes(name));
  }

  /** Load the table again, but not at every step of a training run. */
  async load() {
    const chosen = JSON.stringify([view.heat, view.from, view.to, this.article.dataset.status]);
    if (chosen === this.chosen && performance.now() - this.drawnAt < PERIOD_MS) return;
    const turn = ++this.turn;
    const { operand, statistic } = view.heat;
    const [chosenRun] = this.form.elements.run.selectedOptions;
    const of = chosenRun.value;
    const minus = this.form.elements.of.value === "values" ? null : chosenRun.dataset.minus;
    let content = await this.fetchTable(of, { statistic, operand, minus });
    // A baseline in fp8 may lack what the candidate has: take what the server opens with, the signal to noise of an operand that is quantized.
    if (content === null) content = await this.fetchTable(of, { minus });
    if (turn !== this.turn) return;
    [this.chosen, this.drawnAt, this.content] = [chosen, performance.now(), content];
    this.offer();
    this.draw();
  }

  async fetchTable(run, more) {
    const query = new URLSearchParams({ buckets: Math.max(50, Math.min(400, Math.floor(this.canvas.parentElement.clientWidth / 3))) });
    for (const [name, value] of Object.entries({ ...more, from: view.from, to: view.to })) if (value != null && value !== "") query.set(name, value);
    const answer = await fetch(`/api/v1/runs/${run}/layers?${query}`);
    if (answer.status === 422) return null;
    if (!answer.ok) throw new Error(`the server returned ${answer.status}`);
    return answer.json();
  }

  /** The choices that this run has. */
  offer() {
    const { recorded, statistic, operand } = this.content;
    const statistics = [...(recorded.of_operand[operand] ?? recorded.statistics), ...(recorded.has_norms ? ["grad_norm"] : [])];
    fill(this.form.elements.statistic, statistics, statistic, (name) => NAMES[name]?.[0] ?? name);
    fill(this.form.elements.operand, recorded.operands, operand, (name) => OPERANDS[name] ?? name);
    this.form.elements.operand.closest("label").hidden = operand === null;
    this.form.elements.statistic.disabled = statistic === null;
  }

  draw() {
    if (!this.content) return;
    this.fillTable();
    const { table, statistic, operand } = this.content;
    const hasAny = table !== null && table.first_step.length > 0;
    for (const part of [this.canvas, this.scale]) part.hidden = !hasAny || table.low === null;
    if (!hasAny) {
      this.note.textContent = table === null ? this.figure.dataset.empty : "No statistics were recorded in this range of steps.";
      return;
    }
    const [meaning, unit] = NAMES[statistic] ?? [statistic, ""];
    if (table.low === null) {
      this.note.textContent = "No finite value: this operand stays in bf16 in this arm, or quantization lost nothing.";
      return;
    }
    // One extreme bucket must not flatten all others.
    const isClipped = table.usual_low < table.usual_high && (table.low < table.usual_low || table.high > table.usual_high);
    this.ends = isClipped ? [table.usual_low, table.usual_high] : [table.low, table.high];
    if (this.isDifference) {
      const most = Math.max(...this.ends.map(Math.abs)) || 1e-12;
      this.ends = [-most, most];
    }
    const what = this.what();
    const inUnit = unit ? ` ${unit}` : "";
    this.figure.querySelector(".shown").textContent = `${what}, by layer and step`;
    this.note.textContent = [
      `Showing ${whole(table.first_step.length)} buckets of ${whole(table.steps_in_range)} ${statistic === "grad_norm" ? "steps" : "watched steps"}, ${table.layers.length} layers, first layer on top.`,
      this.isDifference ? `Vermilion: ${this.arm()} has more than ${this.figure.dataset.baseline}; blue: less.` : this.whyOwn(),
      `Hatched: ${this.isDifference ? "one of them has no finite value" : "no finite value"}${statistic === "grad_norm" ? "" : this.isDifference ? ", as where it does not quantize the operand" : " (an operand that is not quantized)"}.`,
      isClipped ? `The scale has the middle 96 % of the values; all of them lie between ${this.short(table.low)} and ${this.short(table.high)}${inUnit}.` : "",
    ].filter(Boolean).join(" ");
    this.paint(table);
    this.paintScale(`${what}: ${meaning}, ${unit || "no unit"}`);
    this.canvas.setAttribute("aria-label", `${what}: ${meaning}${operand === null ? "" : ` (${OPERANDS[operand] ?? operand})`} of ${table.layers.length} layers, from ${this.short(table.low)} to ${this.short(table.high)}${inUnit}; the table below has the numbers`);
  }

  /** Whether what is shown is the difference to the baseline, for which that must have recorded the same. */
  get isDifference() {
    return Boolean(this.content?.minus);
  }

  arm() {
    return this.form.elements.run.selectedOptions[0].textContent.replace(/, replicate \d+$/, "");
  }

  what() {
    return this.isDifference ? `${this.arm()} minus ${this.figure.dataset.baseline}` : this.arm();
  }

  /** Why there is no difference although one was asked for. */
  whyOwn() {
    const { minus } = this.form.elements.run.selectedOptions[0].dataset;
    return minus && this.form.elements.of.value !== "values" ? `${this.figure.dataset.baseline} has no value of this to subtract: the values are those of ${this.arm()} alone.` : "";
  }

  /** A number of the table, with its sign if it is a difference. */
  short(value) {
    return `${this.isDifference && value > 0 ? "+" : ""}${short(value)}`;
  }

  colour(value) {
    const [low, high] = this.ends;
    if (!this.isDifference) return colour(value, low, high);
    const zero = AT_ZERO[matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"];
    const share = Math.min(1, Math.abs(value) / high);
    return `rgb(${zero.map((part, i) => Math.round(part + share * ((value < 0 ? BELOW : ABOVE)[i] - part))).join(" ")})`;
  }

  /** What fills a cell without a finite value: lines, which no number has. */
  hatch(ctx) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = HATCH * devicePixelRatio;
    const own = tile.getContext("2d");
    own.strokeStyle = css("--quiet");
    own.lineWidth = devicePixelRatio;
    own.beginPath();
    own.moveTo(0, tile.height);
    own.lineTo(tile.width, 0);
    own.stroke();
    const pattern = ctx.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / devicePixelRatio));
    return pattern;
  }

  paint({ layers, first_step: first, last_step: last, values }) {
    const ratio = devicePixelRatio;
    const width = this.canvas.parentElement.clientWidth;
    const rowHeight = Math.max(4, Math.min(18, Math.floor(480 / layers.length)));
    this.rowHeight = rowHeight;
    const ctx = this.canvas.getContext("2d");
    ctx.font = LABELS;
    this.left = Math.ceil(Math.min(0.5 * width, 8 + Math.max(...layers.map((layer) => ctx.measureText(layer).width))));
    this.inner = width - this.left - 8;
    const height = layers.length * rowHeight + 40;
    size(this.canvas, width, height);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    const cell = this.inner / first.length;
    const unknown = this.hatch(ctx);
    values.forEach((row, y) => row.forEach((value, x) => {
      ctx.fillStyle = value === "nan" ? unknown : this.colour(value);
      ctx.fillRect(this.left + x * cell, y * rowHeight, cell + 0.5, rowHeight);
    }));
    ctx.fillStyle = css("--quiet");
    ctx.font = LABELS;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const every = Math.ceil(13 / rowHeight);
    layers.forEach((layer, y) => { if (y % every === 0) ctx.fillText(layer, this.left - 6, (y + 0.5) * rowHeight); });
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    const bottom = layers.length * rowHeight;
    for (const step of ticks(first[0], last.at(-1), this.inner / 110)) {
      const bucket = last.findIndex((end) => end >= step);
      const within = (step - first[bucket]) / Math.max(1, last[bucket] - first[bucket]);
      const x = this.left + (bucket + Math.max(0, Math.min(1, within))) * cell;
      ctx.fillRect(x, bottom, 1, 4);
      const half = ctx.measureText(whole(step)).width / 2;
      ctx.fillText(whole(step), Math.max(this.left + half, Math.min(this.left + this.inner - half, x)), bottom + 7);
    }
    ctx.textAlign = "center";
    ctx.font = "bold 12px system-ui, sans-serif";
    ctx.fillText("step", this.left + this.inner / 2, bottom + 23);
  }

  paintScale(label) {
    const [low, high] = this.ends;
    const room = this.scale.parentElement.clientWidth;
    const width = Math.min(360, room - NO_NUMBER);
    size(this.scale, room, 52);
    const ctx = this.scale.getContext("2d");
    ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ctx.clearRect(0, 0, room, 52);
    for (let x = 0; x < width; x++) {
      ctx.fillStyle = this.colour(low + (x / (width - 1)) * (high - low || 1));
      ctx.fillRect(x, 18, 1, 12);
    }
    ctx.fillStyle = css("--quiet");
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "top";
    ctx.fillText(label, 0, 1, room);
    ctx.fillText("no number", width + 44, 18);
    ctx.fillStyle = this.hatch(ctx);
    ctx.fillRect(width + 20, 18, 18, 12);
    ctx.fillStyle = css("--quiet");
    const places = high > low ? ticks(low, high, width / 80) : [low];
    const decimals = places.length > 1 ? Math.max(0, Math.min(12, -Math.floor(Math.log10(places[1] - places[0]) + 1e-9))) : null;
    ctx.textAlign = "center";
    for (const value of places) {
      const x = high > low ? ((value - low) / (high - low)) * width : width / 2;
      const text = `${this.isDifference && value > 0 ? "+" : ""}${decimals === null ? short(value) : value.toFixed(decimals).replace(/^-(?=[0.]*$)/, "").replace("-", "−")}`;
      const half = ctx.measureText(text).width / 2;
      ctx.fillRect(Math.min(width - 1, x), 30, 1, 4);
      ctx.fillText(text, Math.max(half, Math.min(width - half, x)), 36);
    }
  }

  showValue(event) {
    const table = this.content?.table;
    if (!table?.first_step.length || this.rowHeight === undefined) return;
    const x = Math.floor(((event.offsetX - this.left) / this.inner) * table.first_step.length);
    const y = Math.floor(event.offsetY / this.rowHeight);
    const value = table.values[y]?.[x];
    this.figure.querySelector(".readout").textContent = value === undefined ? ""
      : `${table.layers[y]}, steps ${whole(table.first_step[x])} to ${whole(table.last_step[x])}: ${value === "nan" ? "no number" : this.short(value)} ${NAMES[this.content.statistic]?.[1] ?? ""}`;
  }

  /** The cells that are drawn, to the digits that the server gives: a row a bucket, a column a layer. */
  saveCsv() {
    const table = this.content?.table;
    if (!table?.first_step.length) return;
    const rows = table.first_step.map((first, i) => [first, table.last_step[i], ...table.values.map((row) => row[i])].join(","));
    save(new Blob([`${[["first_step", "last_step", ...table.layers].join(","), ...rows].join("\n")}\n`], { type: "text/csv" }), `${this.fileName()}.csv`);
  }

  /** Job, arms, statistic and operand, which name what is in the file and its unit. */
  fileName() {
    const { statistic, operand } = this.content ?? {};
    return [this.figure.dataset.name, "layers", this.what().replaceAll(" ", "-"), statistic, operand].filter(Boolean).join("-");
  }

  fillTable() {
    const table = this.content?.table;
    if (!this.details.open) return;
    const body = this.figure.querySelector("tbody");
    body.replaceChildren(...(table?.first_step.length ? table.layers : []).map((layer, i) => {
      const known = table.values[i].filter((value) => typeof value === "number");
      const cells = known.length ? [known[0], Math.min(...known), Math.max(...known), known.at(-1)].map((value) => this.short(value)) : ["–", "–", "–", "–"];
      const row = document.createElement("tr");
      row.append(...[layer, ...cells].map((text, at) => Object.assign(document.createElement("td"), { textContent: text, className: at ? "number" : "" })));
      return row;
    }));
  }
}

function colour(value, low, high) {
  const share = value === "inf" ? 1 : value === "-inf" ? 0 : high > low ? (value - low) / (high - low) : 0.5;
  const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1);
  const [below, above] = [VIRIDIS[Math.floor(at)], VIRIDIS[Math.ceil(at)]];
  return `rgb(${below.map((part, i) => Math.round(part + (at - Math.floor(at)) * (above[i] - part))).join(" ")})`;
}

function size(canvas, width, height) {
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))).replace("-", "−") : value);

function fill(select, names, chosen, words) {
  select.replaceChildren(...names.map((name) => new Option(words(name), name, false, name === chosen)));
}
