// When can it be decided? Half the interval against the steps, beside how far the gap is from the margin.
import { Chart } from "./chart.js";
import { axisColours, css, level, lineOf, signed, stepAxis, whole, xScale } from "./chart_parts.js";
import { view } from "./view.js";

const HEIGHT = 200;
const PERIOD_MS = 5000;

export class HalfWidthChart extends Chart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, HEIGHT, `${figure.dataset.name}-half-width-${figure.dataset.decidable}`);
    this.readout = figure.querySelector(".readout");
    this.says = figure.querySelector(".says");
    this.address = `/api/v1/jobs/${jobId}/half-widths?candidate=${encodeURIComponent(figure.dataset.decidable)}`;
    this.line = lineOf(Number(figure.dataset.colour));
    this.tokensAStep = tokensAStep;
    this.askedAt = -Infinity;
  }

  /** Nothing of the view needs other numbers: there are at most 61. */
  static asks() {
    return false;
  }

  /** Ask the server, while a run trains not at every step of it; `status` is the job's. */
  async load(status) {
    if (status === this.status && performance.now() - this.askedAt < PERIOD_MS) return;
    [this.status, this.askedAt] = [status, performance.now()];
    const found = await this.ask(this.address);
    if (!found) return;
    this.found = found;
    await this.draw();
  }

  async draw() {
    const { found } = this;
    if (!found) return;
    this.says.textContent = found.sentence.replace(/(?<![\w)])-(?=\d)/g, "−");
    if (!found.step.length) {
      this.note.textContent = "";
      this.holder.hidden = true;
      return;
    }
    this.holder.hidden = false;
    const none = (list) => list.map(() => null);
    const looks = found.step.length;
    const ahead = none(found.forecast_step);
    // The forecast hangs on the last look, so that its line is joined to the other.
    const forecast = [...none(found.step).slice(1), ahead.length ? found.half_width[looks - 1] : null, ...found.forecast_half_width];
    const data = [
      [...found.step, ...found.forecast_step].map((step) => this.xOf(step)),
      [...found.half_width, ...ahead], [...found.run_half_width, ...ahead], [...found.distance, ...ahead], forecast,
    ];
    if (!(await this.show(data, null, () => this.options()))) return;
    this.describe(`Half the interval against the steps. ${found.sentence}`);
    const few = found.baseline_runs[looks - 1] !== found.baseline_runs[0] || found.candidate_runs[looks - 1] !== found.candidate_runs[0];
    this.note.textContent =
      `Showing ${whole(looks)} looks, each as if the plan had ended there; the last fifth of what was trained counts.` +
      `${few ? " Where a line jumps, the number of runs changes." : ""}${ahead.length ? " Dashed: what is still to come." : ""}${view.x === "time" ? " The x axis stays the step." : ""}`;
  }

  /** From zero to above the margin and the later half-widths; the first looks may lie above. */
  range() {
    const { found } = this;
    const late = found.half_width.filter((_, i) => found.step[i] >= found.planned_steps / 5);
    const high = Math.max(found.margin_nats ?? 0, ...late, found.half_width.at(-1), ...found.forecast_half_width);
    return [0, 1.15 * high];
  }

  options() {
    const axis = axisColours();
    const moves = this.moving((low, high) => [low, high].map((at) => Math.max(0, Math.round(at))));
    const plain = { scale: "y", points: { show: false } };
    return {
      cursor: moves.cursor,
      scales: { x: xScale(view, () => this.stepRange()), y: { range: () => this.range() } },
      axes: [
        stepAxis(axis, view, this.tokensAStep),
        { ...axis, scale: "y", label: "half-width, nats", size: 64, labelSize: 20, values: (_, ticks) => ticks.map((v) => (v ? v.toFixed(3) : "0")) },
      ],
      series: [
        {},
        { ...plain, stroke: () => css(this.line), width: 2 },
        { ...plain, stroke: () => css(this.line), width: 1, dash: [2, 3] },
        { ...plain, stroke: () => css("--quiet"), width: 1.5 },
        { ...plain, stroke: () => css(this.line), width: 2, dash: [7, 4], points: { show: this.found.forecast_step.length === 1 } },
      ],
      hooks: {
        setSelect: [moves.setSelect],
        draw: [(plot) => this.found.margin_nats && level(plot, this.found.margin_nats, "--chart-margin", [8, 4, 2, 4])],
        setCursor: [(plot) => this.showReadout(plot)],
      },
    };
  }

  showReadout(plot) {
    const i = plot.cursor.left >= 0 ? plot.cursor.idx : null;
    const steps = [...this.found.step, ...this.found.forecast_step];
    this.lead(i == null ? null : steps[i]);
    this.readout.textContent = i == null ? "" : this.words(i);
  }

  words(i) {
    const { found } = this;
    const ahead = i - found.step.length;
    if (ahead >= 0) return `step ${whole(found.forecast_step[ahead])}: half-width about ${found.forecast_half_width[ahead].toFixed(4)} nats`;
    const distance = found.distance[i];
    return (
      `step ${whole(found.step[i])}: half-width ${found.half_width[i].toFixed(4)} nats (run noise alone ${found.run_half_width[i].toFixed(4)}), ` +
      `gap ${signed(found.gap[i])}${distance === null ? "" : `, ${distance.toFixed(4)} from the margin`}`
    );
  }

  columns() {
    const { found } = this;
    const names = ["step", "gap", "half_width", "run_half_width", "distance", "baseline_runs", "candidate_runs"];
    return found && Object.fromEntries(names.map((name) => [name, found[name]]));
  }

  numbers() {
    const { found } = this;
    if (!found) return null;
    const rows = found.step.map((step, i) => [
      whole(step), found.half_width[i].toFixed(4), found.run_half_width[i].toFixed(4), found.distance[i]?.toFixed(4) ?? "–", `${found.candidate_runs[i]} and ${found.baseline_runs[i]}`,
    ]);
    return [["After step", "Half-width, nats", "Of it run noise", "Gap to margin", "Runs"], rows];
  }
}
