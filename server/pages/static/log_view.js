// The end of what a run's trainer printed, asked for while it is open to be read.
import { element } from "./chart_parts.js";

const PERIOD_MS = 5000;

export class LogView {
  constructor(details) {
    this.details = details;
    this.select = details.querySelector("select");
    this.logs = details.querySelector(".logs");
    this.askedAt = -Infinity;
    details.addEventListener("toggle", () => this.load(true));
    this.select.addEventListener("change", () => this.load(true));
  }

  /** Ask again, while a run trains not at every step of it. */
  async load(now = false) {
    if (!this.details.open || (!now && performance.now() - this.askedAt < PERIOD_MS)) return;
    this.askedAt = performance.now();
    const run = this.select.value;
    const answer = await fetch(`/api/v1/runs/${run}/log`);
    if (run !== this.select.value) return;
    if (!answer.ok) {
      this.logs.replaceChildren(element("p", `The server answered ${answer.status}; open the log again to ask anew.`, "note"));
      return;
    }
    const { attempts } = await answer.json();
    const parts = attempts.flatMap((one) => this.attempt(one));
    this.logs.replaceChildren(...(parts.length ? parts : [element("p", this.details.dataset.empty, "note")]));
  }

  attempt({ attempt, state, worker, lines, cut, missing }) {
    const heading = element("h3", `Attempt ${attempt}, ${state}${worker ? `, on ${worker}` : ""}`);
    if (missing) return [heading, element("p", `Its log is ${missing}.`, "note")];
    if (!lines.length) return [heading, element("p", "It printed nothing.", "note")];
    const text = element("pre", lines.join("\n"), "log");
    text.tabIndex = 0;
    text.setAttribute("role", "region");
    text.setAttribute("aria-label", `Log of attempt ${attempt}`);
    return [heading, ...(cut ? [element("p", `The last ${lines.length} lines.`, "note")] : []), text];
  }
}
