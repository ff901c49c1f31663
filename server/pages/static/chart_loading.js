// The charts of a page: each is loaded when the reader is about to reach it, and again when the view asks for other numbers.
import { view } from "./view.js";

// Charts that the reader is about to reach are ready when he does.
const NEAR = "600px";
// A wheel changes the view many times per second: existing data is drawn at once, and new data is loaded when the wheel rests.
const SETTLED_MS = 150;

/** Follow the reader and the view; `load` is called with the charts that need numbers. Returns the charts that were reached so far. */
export function followCharts(all, load) {
  const charts = new Map(all.map((chart) => [chart.figure, chart]));
  const mounted = new Set();
  const seen = new IntersectionObserver(
    (entries) => {
      const near = entries.filter((entry) => entry.isIntersecting).map((entry) => charts.get(entry.target));
      for (const chart of near) {
        seen.unobserve(chart.figure);
        mounted.add(chart);
      }
      if (near.length) load(near);
    },
    { rootMargin: NEAR },
  );
  for (const figure of charts.keys()) seen.observe(figure);
  let changedAt = -Infinity;
  let settling;
  const unanswered = new Set();
  view.onChange((changes) => {
    for (const chart of mounted) {
      if (chart.constructor.needsData(changes)) unanswered.add(chart);
      chart.draw();
    }
    clearTimeout(settling);
    const quick = performance.now() - changedAt < SETTLED_MS;
    changedAt = performance.now();
    settling = setTimeout(() => {
      const asking = [...unanswered];
      unanswered.clear();
      if (asking.length) load(asking);
    }, quick ? SETTLED_MS : 0);
  });
  return mounted;
}
