// Touch on a chart: one finger sideways selects a range, as a mouse does; two fingers zoom and pan. One finger up or down scrolls the
// page: `touch-action: pan-y` in parity.css leaves that to the browser, which then cancels the pointer.
import { view } from "./view.js";

const SIDEWAYS_PIXELS = 10;

/** Bind touch events to a chart. */
export function followFingers(chart) {
  const { holder } = chart;
  const fingers = new Map(); // id -> where it began and where it is, in pixels from the left end of the plot
  let held = null; // of two fingers: their ids from left to right, and what lay under them

  const placeOf = (event) => {
    const box = chart.plot.over.getBoundingClientRect();
    return Math.max(0, Math.min(box.width, event.clientX - box.left));
  };
  const share = (id) => fingers.get(id).now / chart.plot.over.clientWidth;

  /** The range under one finger on its way; `done` zooms to it. */
  const choose = ({ began, now }, done) => {
    chart.plot.setSelect({ left: Math.min(began, now), width: Math.abs(now - began), top: 0, height: chart.plot.over.clientHeight }, done);
  };
  const chooseNothing = () => chart.plot?.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  const isChoosing = ({ began, now }) => Math.abs(now - began) >= SIDEWAYS_PIXELS;

  const hold = () => {
    const ids = [...fingers.keys()].sort((a, b) => fingers.get(a).now - fingers.get(b).now);
    const [low, high] = view.ends();
    held = { ids, places: ids.map((id) => low + chart.shareOf(share(id)) * (high - low)) };
    chooseNothing();
  };

  const lift = (event, done) => {
    const finger = fingers.get(event.pointerId);
    if (!finger) return;
    if (chart.plot && done && !held && isChoosing(finger)) choose(finger, true);
    else chooseNothing();
    fingers.delete(event.pointerId);
    if (held) fingers.clear(); // the remaining finger selects nothing
    held = null;
  };

  holder.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch" || !chart.plot || fingers.size === 2) return;
    // The plot may be created again under a finger; its holder stays.
    holder.setPointerCapture(event.pointerId);
    const at = placeOf(event);
    fingers.set(event.pointerId, { began: at, now: at });
    if (fingers.size === 2) hold();
  });
  holder.addEventListener("pointermove", (event) => {
    const finger = fingers.get(event.pointerId);
    if (!finger || !chart.plot) return;
    finger.now = placeOf(event);
    if (held) view.stretch(held.places, held.ids.map(share));
    else if (isChoosing(finger)) choose(finger, false);
  });
  holder.addEventListener("pointerup", (event) => lift(event, true));
  holder.addEventListener("pointercancel", (event) => lift(event, false));
}
