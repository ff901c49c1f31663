// The reader's view. All of it is in the URL, so that a copied link shows the same.

export const STYLED = 8; // candidates that have a colour and line of their own at a time

const WHOLE = /^\d{1,15}$/;
const LEAST_STEPS = 2;
const LEAST_SHARE = 0.02; // between two fingers that meet
const ADDRESS_MS = 150;

class View {
  constructor() {
    const query = new URLSearchParams(location.search);
    const number = (name) => (WHOLE.test(query.get(name) ?? "") ? Number(query.get(name)) : null);
    this.from = number("from");
    this.to = number("to");
    if (this.from === null || this.to === null || this.to <= this.from) this.from = this.to = null;
    this.x = ["tokens", "time"].includes(query.get("x")) ? query.get("x") : "step";
    this.log = query.get("log") === "1";
    this.logx = query.get("logx") === "1";
    const { steps, arms, lit, lines } = document.querySelector("[data-steps]").dataset;
    this.planned = Number(steps);
    this.arms = JSON.parse(arms); // of a job the baseline first
    this.lines = lines ? JSON.parse(lines) : null; // of several jobs: what each line is
    this.base = this.lines ? null : this.arms[0];
    this.y = query.get("y") === "whole" ? "whole" : "tail";
    this.candidate = query.get("candidate");
    this.column = query.get("column");
    this.others = query.get("others") !== "0";
    // A hundredth of the run: enough to tell lines apart, with the raw values in the background.
    this.usualHalf = Math.round(this.planned / 100);
    this.half = number("half") ?? this.usualHalf;
    this.pair = /^-?\d+\.\d+$/.test(query.get("pair") ?? "") ? query.get("pair") : null;
    this.usualLit = new Set([...(this.lines ? [] : [this.base]), ...JSON.parse(lit)]);
    const listed = (name) => (query.get(name) ?? "").split(",").filter((arm) => this.arms.includes(arm));
    this.lit = new Set(query.has("show") ? listed("show") : [...this.usualLit].filter((arm) => !listed("hide").includes(arm)));
    this.heat = { run: query.get("heat-run"), of: query.get("heat-of"), operand: query.get("heat-operand"), statistic: query.get("heat-statistic") };
    this.listeners = [];
    this.writtenAt = -Infinity;
  }

  /** Whether there are more lines than a chart shows at a time; a job's baseline does not count. */
  get isCrowded() {
    return this.arms.filter((name) => name !== this.base).length > STYLED;
  }

  get zoomed() {
    return this.from !== null;
  }

  /** First and last step that the charts show. */
  get shown() {
    return [this.from ?? 0, this.to ?? this.planned];
  }

  /** Change parts of the view: write them to the URL, and pass their names to the listeners. */
  set(changes) {
    Object.assign(this, changes);
    // A wheel changes it many times per second, and browsers limit how often the URL may change.
    clearTimeout(this.writing);
    if (performance.now() - this.writtenAt > ADDRESS_MS) this.write();
    else this.writing = setTimeout(() => this.write(), ADDRESS_MS);
    for (const listener of this.listeners) listener(Object.keys(changes));
  }

  /** Highlight an arm, or no longer; of many candidates at most eight, so that the first one gives way. */
  toggle(arm) {
    const lit = new Set(this.lit);
    if (!lit.delete(arm)) lit.add(arm);
    const others = [...lit].filter((name) => name !== this.base);
    if (this.isCrowded && others.length > STYLED) lit.delete(others[0]);
    this.set({ lit });
  }

  /** What the address says of the arms: of few those that are hidden, of many those that are shown; nothing if it is the usual. */
  litWords() {
    const isUsual = this.lit.size === this.usualLit.size && [...this.lit].every((arm) => this.usualLit.has(arm));
    if (isUsual) return {};
    return this.isCrowded ? { show: [...this.lit].join(",") } : { hide: this.arms.filter((arm) => !this.lit.has(arm)).join(",") };
  }

  /** Show `factor` times as many steps, so that what lies at a share of the width stays there. */
  zoom(share, factor) {
    const [low, high] = this.ends();
    const at = low + share * (high - low);
    this.between(at - factor * (at - low), at + factor * (high - at));
  }

  /** Show so much that two places (on the scale of `ends`) lie at two shares of the width, as far as there is a run. */
  stretch([first, second], [left, right]) {
    const [least, most] = [this.scaled(0), this.scaled(this.planned)];
    const span = Math.min(most - least, (second - first) / Math.max(LEAST_SHARE, right - left));
    const low = Math.max(least, Math.min(most - span, first - left * span));
    this.between(low, low + span);
  }

  /** Move by a share of the width; the number of steps (or, on a log axis, their ratio) stays. */
  pan(share) {
    const [low, high] = this.ends();
    const [first, last] = [this.scaled(0), this.scaled(this.planned)];
    const by = Math.max(first - low, Math.min(last - high, share * (high - low)));
    if (this.zoomed) this.between(low + by, high + by);
  }

  ends() {
    return this.shown.map((step) => this.scaled(step));
  }

  scaled(step) {
    return this.logx ? Math.log(Math.max(1, step)) : step;
  }

  between(low, high) {
    let [from, to] = [low, high].map((end) => Math.round(this.logx ? Math.exp(end) : end));
    from = Math.max(this.logx ? 1 : 0, from);
    to = Math.min(this.planned, Math.max(to, from + LEAST_STEPS));
    if (from <= (this.logx ? 1 : 0) && to >= this.planned) this.set({ from: null, to: null });
    else if (to > from) this.set({ from, to });
  }

  write() {
    if (location.protocol === "file:") return; // a page in a file has no address to copy
    const values = {
      from: this.from, to: this.to, x: this.x === "step" ? null : this.x, log: this.log ? 1 : null, logx: this.logx ? 1 : null,
      half: this.half === this.usualHalf ? null : this.half, pair: this.pair, hide: null, show: null, ...this.litWords(),
      y: this.y === "whole" ? "whole" : null, candidate: this.candidate, column: this.column, others: this.others ? null : 0,
      "heat-run": this.heat.run, "heat-of": this.heat.of || null, "heat-operand": this.heat.operand, "heat-statistic": this.heat.statistic,
    };
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    this.writtenAt = performance.now();
    history.replaceState(null, "", address);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const view = new View();
