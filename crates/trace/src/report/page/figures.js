// Figures as people read them.

/**
 * @param {number} value
 * @param {[number, string][]} units
 */
function scaled(value, units) {
  let best = units[0];
  for (const unit of units) if (Math.abs(value) >= unit[0]) best = unit;
  const size = value / best[0];
  const digits = Math.abs(size) >= 99.95 || (best[0] === 1 && Number.isInteger(size)) ? 0 : Math.abs(size) >= 9.995 ? 1 : 2;
  return `${Number(size.toFixed(digits))} ${best[1]}`;
}

/** @typedef {number | null | undefined} Maybe */
const UNKNOWN = "–";
/** @param {Maybe} v */
const ns = (v) => (v === null || v === undefined ? UNKNOWN : v >= 120e9 ? `${(v / 60e9).toFixed(1)} min` : scaled(v, [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]));
/** @param {Maybe} v */
const us = (v) => (v === null || v === undefined ? UNKNOWN : ns(v * 1000));
/** @param {Maybe} v */
const bytes = (v) => (v === null || v === undefined ? UNKNOWN : scaled(v, [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"], [1e15, "PB"]]));
/** Bytes a second. @param {Maybe} v */
const speed = (v) => (v === null || v === undefined ? UNKNOWN : `${bytes(v < 10 ? Number(v.toFixed(1)) : Math.round(v))}/s`);
/** Bits a second, of bytes a second. @param {Maybe} v */
const rate = (v) => (v === null || v === undefined ? UNKNOWN : scaled(v * 8, [[1, "b/s"], [1e3, "kb/s"], [1e6, "Mb/s"], [1e9, "Gb/s"]]));
/** @param {number} v */
const count = (v) => Number(v).toLocaleString("en-US");
/** @param {number} v */
const brief = (v) => scaled(v, [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]]).trim();
/** @param {number} v */
const percent = (v) => {
  const p = v * 100;
  if (p === 0) return "0 %";
  return p < 0.01 ? "< 0.01 %" : `${p < 1 ? p.toFixed(2) : p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
};
/**
 * @param {number} n
 * @param {string} what
 * @param {string} [plural]
 */
const many = (n, what, plural) => `${count(n)} ${n === 1 ? what : plural || `${what}s`}`;
/** @param {number[]} list */
const sum = (list) => list.reduce((x, y) => x + y, 0);

/**
 * A moment of the run, with as many digits as a window of this length needs.
 * @param {number} t
 * @param {number} window
 */
const moment = (t, window) => {
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(Math.max(window, 1) / 1e9)) + 3));
  return `${(t / 1e9).toFixed(digits)} s`;
};

/**
 * Text of at most so many characters: what is left out is in the middle, since names begin alike and numbers stand at their ends.
 * @param {string} text
 * @param {number} most
 */
function shortened(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/**
 * Round numbers between two others.
 * @param {number} from
 * @param {number} to
 * @param {number} most
 */
function niceTicks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough) || power;
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) ticks.push(t);
  return { ticks, step };
}
/**
 * @param {number} value
 * @param {number} least
 */
function niceMax(value, least) {
  const { step } = niceTicks(0, Math.max(value, least), 4);
  return Math.ceil(Math.max(value, least) / step) * step;
}
/**
 * @param {number} t
 * @param {number} step
 */
function tickText(t, step) {
  /** @type {[number, string]} */
  const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  return `${(t / unit[0]).toFixed(Math.min(digits, 6))} ${unit[1]}`;
}
