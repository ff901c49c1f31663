// The controls above the charts: they change the view and show it.
import { baseline, many, paintSwatch } from "./arms.js";
import { whole } from "./chart_parts.js";
import { view } from "./view.js";

/**
 * Bind the controls of the job page; `window_` returns the steps that the verdict reads, once a chart has them. Returns a function that
 * updates the description only, not the fields, in which a reader may be typing.
 */
export function bindControls(window_) {
  const buttons = [...document.querySelectorAll("button[data-arm]")];
  const others = document.querySelector("[name=others]");
  const range = document.getElementById("range");
  const curves = document.getElementById("curve-controls");
  const reset = () => view.set({ from: null, to: null });
  range.addEventListener("submit", (event) => {
    event.preventDefault();
    const { from, to } = range.elements;
    const last = to.value === "" ? view.planned : Number(to.value);
    if (from.value === "" && to.value === "") reset();
    else if (last > Number(from.value)) view.set({ from: Number(from.value), to: last });
  });
  range.elements.x.addEventListener("change", () => view.set({ x: range.elements.x.value }));
  range.elements.logx.addEventListener("change", () => view.set({ logx: range.elements.logx.checked }));
  range.elements.y.addEventListener("change", () => view.set({ y: range.elements.y.value }));
  others?.addEventListener("change", () => view.set({ others: others.checked }));
  range.querySelector("[data-do=reset]").addEventListener("click", reset);
  range.querySelector("[data-do=window]").addEventListener("click", () => {
    const steps = window_();
    if (steps) view.set({ from: steps[0], to: steps[1] });
  });
  curves.addEventListener("submit", (event) => event.preventDefault());
  curves.elements.log.addEventListener("change", () => view.set({ log: curves.elements.log.checked }));
  curves.elements.half.addEventListener("change", () => view.set({ half: Math.max(0, Math.round(Number(curves.elements.half.value) || 0)) }));
  curves.elements.pair?.addEventListener("change", () => view.set({ pair: curves.elements.pair.value }));
  for (const button of buttons) button.addEventListener("click", () => view.toggle(button.dataset.arm));
  const describe = () => {
    const note = document.getElementById("exploratory");
    const steps = window_();
    range.querySelector("[data-do=window]").disabled = !steps;
    note.textContent = view.zoomed
      ? `Exploratory: the charts show steps ${whole(view.from)} to ${whole(view.to)}. This does not change the verdict${steps ? `, which reads steps ${whole(steps[0])} to ${whole(steps[1])}` : ""}.`
      : "";
  };
  const show = () => {
    range.elements.x.value = view.x;
    range.elements.logx.checked = view.logx;
    range.elements.y.value = view.y;
    if (others) others.checked = view.others;
    range.elements.from.value = view.from ?? "";
    range.elements.to.value = view.to ?? "";
    range.querySelector("[data-do=reset]").disabled = !view.zoomed;
    curves.elements.log.checked = view.log;
    curves.elements.half.value = view.half;
    if (curves.elements.pair && view.pair) curves.elements.pair.value = view.pair;
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(view.lit.has(button.dataset.arm)));
      // The curves of many candidates have those that are highlighted, and so does their legend.
      button.hidden = many && curves.contains(button) && !view.lit.has(button.dataset.arm) && button.dataset.arm !== baseline;
      paintSwatch(button.querySelector(".swatch"), button.dataset.arm);
    }
    describe();
  };
  view.onChange(show);
  show();
  return describe;
}
