// The last log lines of a run's trainer, loaded while the view is open.
import { element } from "./chart_parts.js";

const PERIOD_MS = 5000;
const AT_END_PIXELS = 4;
const share = (value) => `${(100 * value).toFixed(0)} %`;
const MEASURED = {
  compile_seconds: (value) => `compiled ${value.toFixed(1)} s`,
  peak_memory_bytes: (value) => `peak memory ${(value / 2 ** 30).toFixed(2)} GiB`,
  compute_share: (value) => `${share(value)} of the traced time computing`,
  communication_share: (value) => `${share(value)} communicating`,
  idle_share: (value) => `${share(value)} idle`,
  data_wait_share: (value) => `${share(value)} waiting for data`,
};

export class LogView {
  constructor(details) {
    this.details = details;
    this.select = details.querySelector("select");
    this.logs = details.querySelector(".logs");
    this.loadedAt = -Infinity;
    this.open = () => this.load(true).catch((error) => this.refuse(`The server does not answer (${error.message})`));
    details.addEventListener("toggle", this.open);
    this.select.addEventListener("change", this.open);
  }

  /** Show why there is no log; a log of this run that is already shown stays. */
  refuse(why) {
    if (this.run === this.select.value && this.content) return;
    this.content = null;
    this.logs.replaceChildren(element("p", `${why}; open the log again to retry.`, "note"));
  }

  /** Load again, but not at every step of a training run; no call is dropped, because a run's last event may be the one that ended it. */
  async load(now = false) {
    if (!this.details.open) return;
    clearTimeout(this.later);
    const wait = this.loadedAt + PERIOD_MS - performance.now();
    if (!now && wait > 0) {
      this.later = setTimeout(this.open, wait);
      return;
    }
    this.loadedAt = performance.now();
    const run = this.select.value;
    const [answer, profile] = await Promise.all([fetch(`/api/v1/runs/${run}/log`), fetch(`/api/v1/runs/${run}/steps?kind=profile`)]);
    if (run !== this.select.value) return;
    if (!answer.ok) {
      this.refuse(`The server returned ${answer.status}`);
      return;
    }
    const { attempts } = await answer.json();
    const values = profile.ok ? await profile.json() : null;
    const content = JSON.stringify([attempts, values]);
    if (run === this.run && content === this.content) return;
    const parts = [...measured(run, values), ...attempts.flatMap((one) => this.attempt(run, one))];
    this.fill(parts.length ? parts : [element("p", this.details.dataset.empty, "note")], run === this.run);
    [this.run, this.content] = [run, content];
  }

  /** Show these parts; logs are scrolled to their ends, unless the reader of the same run has scrolled up (`keep`). */
  fill(parts, keep) {
    const before = [...this.logs.querySelectorAll("pre")];
    const places = before.map((text) => (keep && text.scrollHeight - text.scrollTop - text.clientHeight > AT_END_PIXELS ? text.scrollTop : null));
    const focused = before.indexOf(document.activeElement);
    this.logs.replaceChildren(...parts);
    const texts = [...this.logs.querySelectorAll("pre")];
    texts.forEach((text, at) => { text.scrollTop = places[at] ?? text.scrollHeight; });
    texts[focused]?.focus({ preventScroll: true });
  }

  attempt(run, { attempt, state, worker, lines, cut, missing, artifacts }) {
    const heading = [element("h3", `Attempt ${attempt}, ${state}${worker ? `, on ${worker}` : ""}`)];
    if (artifacts.length) heading.push(files(run, attempt, artifacts));
    if (missing) return [...heading, element("p", `Its log is ${missing}.`, "note")];
    if (!lines.length) return [...heading, element("p", "The log is empty.", "note")];
    const text = element("pre", lines.join("\n"), "log");
    text.tabIndex = 0;
    text.setAttribute("role", "region");
    text.setAttribute("aria-label", `Log of attempt ${attempt}`);
    return [...heading, ...(cut ? [element("p", `The last ${lines.length} lines.`, "note")] : []), text];
  }
}

/** Links to the files of an attempt. */
function files(run, attempt, names) {
  const list = element("p", "Files: ", "note");
  names.forEach((name, position) => {
    const href = `/api/v1/runs/${run}/artifacts/${attempt}/${name.split("/").map(encodeURIComponent).join("/")}`;
    list.append(position ? ", " : "", Object.assign(element("a", name), { href }));
  });
  return list;
}

/** The newest row of the run's profile as text, with a link to all rows. */
function measured(run, profile) {
  if (!profile?.steps.length) return [];
  const words = Object.entries(MEASURED).flatMap(([name, say]) => {
    const value = profile.columns[name]?.findLast((one) => one !== null);
    return value === undefined ? [] : [say(value)];
  });
  const text = element("p", `Profile: ${words.join(", ")}. `);
  text.append(Object.assign(element("a", "As CSV"), { href: `/api/v1/runs/${run}/steps?kind=profile&format=csv` }));
  return [text];
}
