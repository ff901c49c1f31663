// What the reader chose to look at. All of it stands in the address, so that a copied link shows the same.

const WHOLE = /^\d{1,15}$/;

class View {
  constructor() {
    const asked = new URLSearchParams(location.search);
    const number = (name) => (WHOLE.test(asked.get(name) ?? "") ? Number(asked.get(name)) : null);
    this.from = number("from");
    this.to = number("to");
    if (this.from === null || this.to === null || this.to <= this.from) this.from = this.to = null;
    this.x = ["tokens", "time"].includes(asked.get("x")) ? asked.get("x") : "step";
    this.log = asked.get("log") === "1";
    // A hundredth of the run: enough to see one line past the other, and the record stays behind it.
    this.usualHalf = Math.round(Number(document.querySelector("[data-steps]").dataset.steps) / 100);
    this.half = number("half") ?? this.usualHalf;
    this.pair = /^-?\d+\.\d+$/.test(asked.get("pair") ?? "") ? asked.get("pair") : null;
    this.hide = new Set((asked.get("hide") ?? "").split(",").filter(Boolean));
    this.heat = { run: asked.get("heat-run"), operand: asked.get("heat-operand"), statistic: asked.get("heat-statistic") };
    this.listeners = [];
  }

  get zoomed() {
    return this.from !== null;
  }

  /** Change some of it: the address says so, and whoever listens is told what changed. */
  set(changes) {
    Object.assign(this, changes);
    const said = {
      from: this.from, to: this.to, x: this.x === "step" ? null : this.x, log: this.log ? 1 : null, half: this.half === this.usualHalf ? null : this.half, pair: this.pair,
      hide: [...this.hide].join(",") || null, "heat-run": this.heat.run, "heat-operand": this.heat.operand, "heat-statistic": this.heat.statistic,
    };
    const address = new URL(location.href);
    for (const [name, value] of Object.entries(said)) {
      if (value === null || value === undefined) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    }
    history.replaceState(null, "", address);
    for (const listener of this.listeners) listener(Object.keys(changes));
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const view = new View();
