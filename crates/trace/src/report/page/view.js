// The part of the run that is looked at: all that is drawn over time shows the same one.
const view = { from: 0, to: Math.max(1, data.span) };
/** Room for names left of what is drawn over time, and right of it. */
const frame = { gutter: 150, right: 14 };
/** @type {(() => void)[]} */
const viewers = [];

/**
 * @param {number} from
 * @param {number} to
 */
function setView(from, to) {
  const least = Math.min(1000, data.span);
  const span = Math.min(Math.max(to - from, least), Math.max(1, data.span));
  view.from = Math.min(Math.max(0, from), data.span - span);
  view.to = view.from + span;
  viewers.forEach((viewer) => viewer());
}
/**
 * @param {number} from
 * @param {number} to
 */
function show(from, to) {
  setView(from, to);
  const all = view.from <= 0 && view.to >= data.span;
  keep({ from: all ? null : Math.round(view.from), to: all ? null : Math.round(view.to) });
}
/**
 * @param {number} factor
 * @param {number} [at]
 */
function zoom(factor, at) {
  const center = at === undefined ? (view.from + view.to) / 2 : at;
  show(center - (center - view.from) * factor, center + (view.to - center) * factor);
}
/** @param {number} share of the window */
const slide = (share) => { const by = share * (view.to - view.from); show(view.from + by, view.to + by); };
const restoreView = () => setView(keptNumber("from") ?? 0, keptNumber("to") ?? data.span);
returns.push(restoreView);

/** @param {Element} target */
const innerWidthOf = (target) => Math.max(1, target.getBoundingClientRect().width - frame.gutter - frame.right);
/**
 * @param {{ clientX: number }} event
 * @param {Element} target
 */
const timeAt = (event, target) => view.from + (event.clientX - target.getBoundingClientRect().left - frame.gutter) / innerWidthOf(target) * (view.to - view.from);

/**
 * Dragging moves, two fingers or Ctrl and the wheel zoom, a double click zooms in. What goes up and down scrolls the page.
 * @param {HTMLElement} target
 */
function movable(target) {
  /** @type {Map<number, number>} */
  const fingers = new Map();
  /** @type {{ at: number[], from: number, to: number } | null} */
  let held = null;
  const hold = () => { held = fingers.size ? { at: [...fingers.values()].slice(0, 2), from: view.from, to: view.to } : null; };
  target.classList.add("movable");
  target.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    try { target.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    fingers.set(event.pointerId, event.clientX);
    hold();
  });
  target.addEventListener("pointermove", (event) => {
    if (!held || !fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, event.clientX);
    const left = target.getBoundingClientRect().left + frame.gutter;
    const inner = innerWidthOf(target);
    const now = [...fingers.values()].slice(0, 2).map((x) => (x - left) / inner);
    const then = held.at.map((x) => (x - left) / inner);
    const span = held.to - held.from;
    if (now.length === 2 && then.length === 2) {
      // what was under the fingers stays under them
      const wide = Math.max(Math.abs(now[1] - now[0]), 0.02);
      const zoomed = span * Math.max(Math.abs(then[1] - then[0]), 0.02) / wide;
      const from = held.from + (then[0] + then[1]) / 2 * span - (now[0] + now[1]) / 2 * zoomed;
      show(from, from + zoomed);
    } else {
      const by = (then[0] - now[0]) * span;
      show(held.from + by, held.to + by);
    }
  });
  const drop = (/** @type {PointerEvent} */ event) => { fingers.delete(event.pointerId); hold(); };
  target.addEventListener("pointerup", drop);
  target.addEventListener("pointercancel", drop);
  target.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event, target)); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); slide(event.deltaX / 900); }
  }, { passive: false });
  target.addEventListener("dblclick", (event) => zoom(0.25, timeAt(event, target)));
}

/**
 * The same by keys.
 * @param {HTMLElement} target
 * @param {Record<string, () => void>} more
 */
function keyed(target, more) {
  /** @type {Record<string, () => void>} */
  const acts = {
    ArrowLeft: () => slide(-1 / 8), ArrowRight: () => slide(1 / 8), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, data.span),
    Home: () => show(0, view.to - view.from), End: () => show(data.span - (view.to - view.from), data.span), ...more,
  };
  target.addEventListener("keydown", (event) => {
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
    if (act) { event.preventDefault(); act(); }
  });
}
