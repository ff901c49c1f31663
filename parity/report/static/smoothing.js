// Smoothing without lag and without a pull at the ends.

const SLOPE = 4; // times the half-life: the slope needs more values than the mean, else it follows their noise at the ends

/**
 * The mean of the values around each x, with weights that halve every `half` steps on both sides, moved along the slope to x itself.
 *
 * A mean of earlier values lags behind a loss that falls, and its first values rest on few points; a centred mean is pulled
 * to the inside at an end, where it has values on one side only. There the slope, of a line fitted with weights of four times the
 * half-life, corrects that. A straight line is unchanged. Null and undefined values are kept and not counted.
 */
export function smoothed(x, values, half) {
  const near = sums(x, values, half);
  const wide = sums(x, values, SLOPE * half);
  return values.map((value, i) => {
    if (value == null) return value;
    const [w, wd, , wy] = near[i];
    return wy / w - slope(wide[i]) * (wd / w);
  });
}

/** The slope of the line through weighted values; 0 where all lie at one place. */
function slope([w, wd, wdd, wy, wdy]) {
  const spread = w * wdd - wd * wd;
  return spread > 1e-9 * w * wdd ? (w * wdy - wd * wy) / spread : 0;
}

/** Sums over both sides of each place: of weights, times distance, times its square, times value, times both. */
function sums(x, values, half) {
  const before = side(x, values, half, 1);
  const after = side(x, values, half, -1);
  // Both sides hold the value itself, which has distance 0.
  return values.map((value, i) => (value == null ? null : before[i].map((sum, at) => sum + after[i][at] - [1, 0, 0, value, 0][at])));
}

function side(x, values, half, direction) {
  const sums_ = new Array(values.length);
  let [w, wd, wdd, wy, wdy] = [0, 0, 0, 0, 0];
  let last = null;
  for (let i = direction > 0 ? 0 : values.length - 1; i >= 0 && i < values.length; i += direction) {
    if (values[i] == null) continue;
    const moved = last === null ? 0 : x[i] - last;
    const kept = last === null ? 0 : 0.5 ** (Math.abs(moved) / half);
    last = x[i];
    [wdd, wdy, wd] = [kept * (wdd - 2 * moved * wd + moved * moved * w), kept * (wdy - moved * wy), kept * (wd - moved * w)];
    [w, wy] = [kept * w + 1, kept * wy + values[i]];
    sums_[i] = [w, wd, wdd, wy, wdy];
  }
  return sums_;
}
