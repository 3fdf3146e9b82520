// The whole run in a strip, of which a part is looked at: dragging in it chooses another one.
const STRIP = 26;

/** @param {HTMLElement} box whose width it has */
function overviewStrip(box) {
  const canvas = el("canvas", { class: "strip", "aria-hidden": "true" });
  // of an MPI program its MPI calls: its socket calls lie inside them
  const some = lanes.filter((lane) => lane.mpi === (data.totals.mpi > 0));
  const used = some.length ? some : lanes;
  const names = used.length ? tonesOf(used[0].mpi) : [];
  /** @type {ImageData | null} */
  let picture = null;
  function drawRun(/** @type {CanvasRenderingContext2D} */ pen, /** @type {number} */ inner) {
    const tones = names.map(color);
    pen.fillStyle = color("fill");
    pen.fillRect(frame.gutter, 0, inner, STRIP);
    for (let x = 0; x < inner; x++) {
      const total = names.map(() => 0);
      for (const lane of used) sharesAt(lane, data.span * x / inner, data.span * (x + 1) / inner).forEach((share, c) => { total[c] += share; });
      let bottom = STRIP;
      total.forEach((share, c) => {
        const h = Math.min(bottom, share > 0 ? Math.max(0.7, share / used.length * STRIP) : 0);
        pen.fillStyle = tones[c];
        pen.fillRect(frame.gutter + x, bottom - h, 1.02, h);
        bottom -= h;
      });
    }
    if (frame.gutter > 130) {
      pen.fillStyle = color("soft");
      pen.font = `11px ${FONT}`;
      pen.fillText("all of the run", 0, STRIP / 2 + 4);
    }
  }
  function draw() {
    const width = box.clientWidth;
    // of a page that is not shown (a tab of a notebook): it is drawn when it has a size
    if (width <= 0) return;
    const inner = width - frame.gutter - frame.right;
    const fresh = !picture || picture.width !== Math.round(width * (devicePixelRatio || 1));
    const pen = fit(canvas, width, STRIP);
    if (fresh) {
      drawRun(pen, inner);
      picture = pen.getImageData(0, 0, canvas.width, canvas.height);
    }
    if (picture) pen.putImageData(picture, 0, 0);
    const a = frame.gutter + view.from / data.span * inner;
    const b = Math.max(a + 2, frame.gutter + view.to / data.span * inner);
    pen.fillStyle = color("card");
    pen.globalAlpha = 0.7;
    pen.fillRect(frame.gutter, 0, a - frame.gutter, STRIP);
    pen.fillRect(b, 0, width - frame.right - b, STRIP);
    pen.globalAlpha = 1;
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(a + 0.75, 0.75, Math.max(1, b - a - 1.5), STRIP - 1.5);
  }
  const at = (/** @type {PointerEvent} */ event) => Math.min(Math.max((event.clientX - canvas.getBoundingClientRect().left - frame.gutter) / innerWidthOf(canvas), 0), 1) * data.span;
  /** @type {number | null} */
  let anchor = null;
  canvas.addEventListener("pointerdown", (event) => {
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    anchor = at(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (anchor === null) return;
    const t = at(event);
    if (Math.abs(t - anchor) > data.span / 400) show(Math.min(anchor, t), Math.max(anchor, t));
  });
  canvas.addEventListener("pointerup", (event) => {
    const t = at(event);
    if (anchor !== null && Math.abs(t - anchor) <= data.span / 400) { const half = (view.to - view.from) / 2; show(t - half, t + half); }
    anchor = null;
  });
  canvas.addEventListener("pointercancel", () => { anchor = null; });
  return { canvas, draw, forget: () => { picture = null; } };
}
