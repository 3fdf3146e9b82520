// Colours by name, and charts that are drawn again when the scheme or the window changes.
/** @param {string} name */
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
/** @param {string} name */
const ramp = (name) => color(name).split(",").map((c) => c.trim());
/** By class, as data.timeline.classes names them. */
const SOCKET_COLORS = ["send", "receive", "wait", "other", "idle"];
const MPI_COLORS = ["mpi-send", "mpi-receive", "mpi-wait", "mpi-collective", "mpi-onesided", "mpi-other"];
/** @param {boolean} mpi */
const tonesOf = (mpi) => (mpi ? MPI_COLORS : SOCKET_COLORS);
const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** @param {string} tone */
const channels = (tone) => [1, 3, 5].map((at) => parseInt(tone.slice(at, at + 2), 16));
/** Relative luminance, as WCAG defines it. @param {number[]} rgb */
function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
/** Black or white, whichever can be read: one of them always has a contrast of 4.5 to 1 and more. @param {number[]} rgb */
const inkOn = (rgb) => ((luminance(rgb) + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff");
/**
 * The colour at a place of a ramp, from 0 to 1.
 * @param {string[]} tones
 * @param {number} place
 */
function between(tones, place) {
  const at = Math.max(0, Math.min(1, place)) * (tones.length - 1);
  const low = Math.min(tones.length - 2, Math.floor(at));
  const [a, b] = [channels(tones[low]), channels(tones[low + 1])];
  return a.map((c, i) => c + (b[i] - c) * (at - low));
}

/** @type {{ made: Chart, draw: () => void }[]} */
const charts = [];
/** @type {(() => void)[]} */
const redraws = [];
/**
 * @param {HTMLElement} element
 * @param {string} label what it shows, in a sentence
 * @param {() => object} option
 */
function chart(element, label, option) {
  const made = echarts.init(element, null, { renderer: "canvas" });
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  const draw = () => made.setOption({ animation: false, textStyle: { fontFamily: FONT, color: color("soft") }, ...option() }, { notMerge: true });
  draw();
  charts.push({ made, draw });
  return { made, draw };
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  charts.forEach((each) => each.draw());
  redraws.forEach((each) => each());
});
addEventListener("resize", lazily(() => {
  charts.forEach((each) => { each.made.resize(); each.draw(); });
  redraws.forEach((each) => each());
}));

const tipStyle = () => ({
  backgroundColor: color("tip"), borderColor: color("line"), borderWidth: 1, padding: [7, 10], confine: true,
  textStyle: { color: color("ink"), fontSize: 12.5, fontFamily: FONT }, transitionDuration: 0,
});

/**
 * A canvas of this size in points of the screen, emptied.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function fit(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("no canvas");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** @type {Map<string, string>} */
const fitted = new Map();
/**
 * Text as long as there is room for, with what is left out in the middle.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} room
 */
function fitText(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  const key = `${pen.font}|${Math.round(room)}|${text}`;
  let found = fitted.get(key);
  if (found === undefined) {
    let [low, high] = [1, text.length];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(shortened(text, middle)).width <= room) low = middle; else high = middle - 1;
    }
    found = low < 3 ? "" : shortened(text, low);
    if (fitted.size > 5000) fitted.clear();
    fitted.set(key, found);
  }
  return found;
}
