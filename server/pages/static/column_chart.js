// A chart of any column that a run has recorded, chosen from a menu.
import { SeriesChart } from "./series_chart.js";
import { view } from "./view.js";

const PERIOD_MS = 15_000;
const GROUPS = { train: "each step", validation: "validation" };

export class ColumnChart extends SeriesChart {
  constructor(figure, jobId, tokensAStep) {
    super(figure, jobId, tokensAStep);
    this.select = figure.querySelector("select");
    this.chosen = figure.querySelector(".chosen");
    this.listedAt = -Infinity;
    this.select.addEventListener("change", () => view.set({ column: this.select.value || null }));
  }

  static needsData(changes) {
    return changes.includes("column") || SeriesChart.needsData(changes);
  }

  /** Load the menu, but not at every step of a training run, then the chosen column; `status` is the job's. */
  async load(status) {
    if (status !== this.status || performance.now() - this.listedAt > PERIOD_MS) {
      [this.status, this.listedAt] = [status, performance.now()];
      await this.list();
    }
    [this.kind, this.column] = view.column?.split(/\.(.*)/s) ?? ["train", ""];
    this.chosen.hidden = !this.column;
    if (!this.column) return;
    this.figure.dataset.title = this.column;
    this.name = `${this.figure.dataset.name}-${this.kind === "train" ? "" : `${this.kind}-`}${this.column}`;
    await super.load();
  }

  async draw() {
    if (view.column) await super.draw();
  }

  async list() {
    const answer = await fetch(`/api/v1/jobs/${this.jobId}/columns`);
    if (!answer.ok) throw new Error(`the server returned ${answer.status}`);
    const columns = await answer.json();
    const groups = Object.entries(GROUPS).filter(([kind]) => columns[kind].length).map(([kind, label]) => {
      const group = Object.assign(document.createElement("optgroup"), { label });
      group.append(...columns[kind].map((name) => new Option(name, `${kind}.${name}`)));
      return group;
    });
    this.select.replaceChildren(this.select.options[0], ...groups);
    this.select.value = view.column ?? "";
    if (this.select.selectedIndex < 0) this.select.value = "";
  }
}
