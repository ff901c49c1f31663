// The charts of a job's page with the lines of several jobs: each job is asked as its own page asks it, and what comes is put on common rows.
import { candidates, labelOf, many } from "./arms.js";
import { finite, json, whole } from "./chart_parts.js";
import { GapChart } from "./gap_chart.js";
import { SeriesChart, nearest } from "./series_chart.js";
import { view } from "./view.js";

const BINS = 150; // of the longest job, as the server answers where nobody asks for a number
const RAW_VALUES = 60_000; // of all jobs together, as of one job on its own page
const WINDOW = new Set(["from", "to", "logx"]);

export class JobsSeriesChart extends SeriesChart {
  /** One document of all jobs, with the edges of all of them. */
  async ask() {
    const jobs = byJob(this.wanted);
    const query = this.query();
    const points = Number(query.get("points"));
    query.set("raw_values", Math.floor(RAW_VALUES / Math.max(1, jobs.size)));
    const { answers, failed } = await answered(jobs, (job, names) => {
      query.set("arms", names.map((name) => view.lines[name].arm).join(","));
      query.set("points", shareOf(job, points));
      return json(`/api/v1/jobs/${job}/overlay?${query}`);
    });
    this.failed = failed;
    const rows = commonRows(answers);
    this.extents = answers.filter(({ content }) => content.first_step.length)
      .map(({ names, content }) => ({ job: view.lines[names[0]].job_label, first: content.first_step[0], last: content.last_step.at(-1) }));
    const isRaw = answers.every(({ content }) => content.aggregation === "none");
    return {
      ...rows.edges,
      aggregation: isRaw ? "none" : "minmaxmean",
      steps_in_range: isRaw ? rows.edges.first_step.length : Math.max(...answers.map(({ content }) => content.steps_in_range)),
      arms: answers.flatMap(({ names, content }) => content.arms.map(({ arm, run, line }) => ({ arm: nameOf(names, arm), run, line: placed(line, content, rows) }))),
    };
  }

  missing() {
    return super.missing().filter((name) => !this.failed.has(view.lines[name].job));
  }

  summary() {
    return [super.summary(), this.apart(), failedWords(this.failed)].filter(Boolean).join(" ");
  }

  /** Between two steps of a job, the nearest: others' rows may lie there. */
  rowOf(one, idx) {
    const values = this.data[one.column + 2];
    return this.byTime || isBetween(values, idx) ? nearest(values, idx) : idx;
  }

  /** That the jobs have no step in common. */
  apart() {
    if (this.extents.length < 2 || Math.max(...this.extents.map(({ first }) => first)) <= Math.min(...this.extents.map(({ last }) => last))) return "";
    return `These jobs have no step in common: ${this.extents.map(({ job, first, last }) => `${job} has ${whole(first)} to ${whole(last)}`).join(", ")}.`;
  }
}

export class JobsGapChart extends GapChart {
  /** Of many lines only those that are highlighted are asked for. */
  static needsData(changes) {
    return changes.some((name) => WINDOW.has(name) || (many && name === "lit"));
  }

  async load() {
    const wanted = candidates.filter((name) => !many || view.lit.has(name));
    const query = this.query();
    const bins = Number(query.get("bins") ?? BINS);
    const asked = await this.latest(answered(byJob(wanted), (job, names) => {
      query.set("candidates", names.map((name) => view.lines[name].arm).join(","));
      query.set("bins", shareOf(job, bins));
      return json(`/api/v1/jobs/${job}/gaps?${query}`);
    }));
    if (!asked) return;
    this.failed = asked.failed;
    const rows = commonRows(asked.answers);
    this.gaps = {
      ...rows.edges,
      // Spikes stand on the job's own page: those of several jobs would cover the chart.
      candidates: asked.answers.flatMap(({ names, content }) => content.candidates.map((one) => ({
        ...one, candidate: nameOf(names, one.candidate), mean: rows.put(content, one.mean), spikes_candidate: [], spikes_baseline: [],
      }))),
    };
    this.missing = wanted.filter((name) => !this.failed.has(view.lines[name].job) && !this.gaps.candidates.some((one) => one.candidate === name));
    await this.draw();
  }

  /** The steps that the verdicts read, where they read the same. */
  get window() {
    const windows = this.gaps?.candidates.map((one) => one.window).filter(Boolean) ?? [];
    return windows.every((one) => `${one}` === `${windows[0]}`) ? windows[0] ?? null : null;
  }

  emptyNote() {
    if (!candidates.length) return "No gap: none of these jobs has a candidate with a curve.";
    if (many && !candidates.some((name) => view.lit.has(name))) return "No candidate is chosen in the legend.";
    return `No gap: ${view.zoomed ? "no" : "so far no"} candidate has a step in common with its baseline${view.zoomed ? " in this range" : ""}.`;
  }

  summary() {
    const isShaded = this.window || !this.gaps.candidates.some((one) => one.window);
    return [
      `Showing ${whole(this.gaps.first_step.length)} bins; each gap is to the baseline of its own job.`,
      this.lit.length ? this.clippedNote() : "No candidate is chosen in the legend.",
      isShaded ? "" : "The verdicts read different steps, so that none are shaded.",
      this.missing.length ? `No step in common with the baseline: ${this.missing.map(labelOf).join(", ")}.` : "",
      failedWords(this.failed),
      view.x === "time" ? "The x axis shows steps, because the gap compares equal steps." : "",
    ].filter(Boolean).join(" ");
  }

  /** In the bin, or in the nearest one that the job has: others' bins may lie between those of a job. */
  valueAt(one, i) {
    for (const side of [0, -1, 1]) {
      let at = i;
      while (side && one.mean[at] === undefined && at >= 0 && at < one.mean.length) at += side;
      if (finite(one.mean[at]) !== null && (side === 0 || isBetween(one.mean, i))) return one.mean[at];
    }
    return null;
  }
}

/** Whether values stand on both sides of a place. */
const isBetween = (values, i) => values.findIndex((value) => value !== undefined) <= i && i <= values.findLastIndex((value) => value !== undefined);

/** Of so many parts of the steps that are shown, those that a job has: parts of all jobs are about equally long. */
function shareOf(job, parts) {
  if (view.logx) return parts;
  const steps = Math.max(...Object.values(view.lines).filter((line) => line.job === job).map((line) => line.steps));
  const [first, last] = view.shown;
  return Math.max(1, Math.round(parts * Math.max(0, Math.min(1, (steps - first) / Math.max(1, last - first)))));
}

/** Names of lines by the id of their job. */
function byJob(names) {
  const jobs = new Map();
  for (const name of names) {
    const { job } = view.lines[name];
    jobs.set(job, [...(jobs.get(job) ?? []), name]);
  }
  return jobs;
}

/** What the server answers for each job, and the reasons by job where it does not; an error where it does for none. */
async function answered(jobs, ask) {
  const ids = [...jobs.keys()];
  const settled = await Promise.allSettled(ids.map((job) => ask(job, jobs.get(job))));
  const answers = [];
  const failed = new Map();
  settled.forEach(({ value, reason }, i) => {
    if (reason) failed.set(ids[i], reason.message);
    else answers.push({ names: jobs.get(ids[i]), content: value });
  });
  if (failed.size && !answers.length) throw settled[0].reason;
  return { answers, failed };
}

function failedWords(failed) {
  if (!failed.size) return "";
  const label = (job) => Object.values(view.lines).find((line) => line.job === job).job_label;
  return `Not loaded: ${[...failed].map(([job, reason]) => `${label(job)} (${reason})`).join(", ")}.`;
}

const nameOf = (names, arm) => names.find((name) => view.lines[name].arm === arm);

/** The steps of all answers, ascending, each once; `put` moves an answer's values to them, `undefined` where a row is another job's alone. */
function commonRows(answers) {
  const found = new Map();
  const key = (first, last) => `${first} ${last}`;
  for (const { content } of answers) content.first_step.forEach((first, i) => found.set(key(first, content.last_step[i]), [first, content.last_step[i]]));
  const rows = [...found.values()].sort(([a, b], [c, d]) => a + b - c - d || a - c);
  const places = new Map(rows.map(([first, last], i) => [key(first, last), i]));
  const put = (content, values) => {
    const moved = Array(rows.length).fill(undefined);
    values.forEach((value, i) => { moved[places.get(key(content.first_step[i], content.last_step[i]))] = value; });
    return moved;
  };
  return { edges: { first_step: rows.map(([first]) => first), last_step: rows.map(([, last]) => last) }, put };
}

function placed(line, content, rows) {
  const moved = Object.entries(line).map(([name, values]) => [name, Array.isArray(values) && name !== "nonfinite" ? rows.put(content, values) : values]);
  return Object.fromEntries(moved);
}
