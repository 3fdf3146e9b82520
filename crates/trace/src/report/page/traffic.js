// Bytes a second over time: of all processes above the time line, of one connection under it.

/**
 * @typedef {object} Stream one line of a band
 * @property {string} name
 * @property {string} tone
 * @property {Amounts} amounts
 */

/**
 * A canvas that shows streams in the window.
 * @param {string} what whose bytes
 * @param {() => Stream[]} streams
 * @param {number} height
 */
function trafficBand(what, streams, height) {
  const canvas = el("canvas", { class: "band", role: "img" });
  const table = asTable("Bytes as a table", `Bytes a second of ${what}`, ["From", "to", "Stream", "Bytes", "A second"], () => {
    const part = (view.to - view.from) / 12;
    return Array.from({ length: 12 }, (_, i) => view.from + i * part).flatMap((from) => streams().map((stream) => {
      const within = stream.amounts.within(from, from + part);
      return [moment(from, part), moment(from + part, part), stream.name, bytes(Math.round(within)), speed(within / part * 1e9)];
    }));
  });
  function draw() {
    const width = canvas.parentElement?.clientWidth ?? 0;
    if (width <= 0) return;
    const pen = fit(canvas, width, height);
    const inner = width - frame.gutter - frame.right;
    const step = (view.to - view.from) / inner;
    const lines = streams().map((stream) => {
      const rates = new Float64Array(Math.ceil(inner));
      for (let x = 0; x < rates.length; x++) rates[x] = Math.max(0, stream.amounts.within(view.from + x * step, view.from + (x + 1) * step)) / step * 1e9;
      return { ...stream, rates };
    });
    const most = Math.max(1, ...lines.map((line) => line.rates.reduce((a, b) => Math.max(a, b), 0)));
    const top = 6;
    const y = (/** @type {number} */ value) => height - 1 - value / most * (height - top - 1);
    pen.fillStyle = color("fill");
    pen.fillRect(frame.gutter, top, inner, height - top);
    for (const line of lines) {
      const path = new Path2D();
      path.moveTo(frame.gutter, y(line.rates[0]));
      line.rates.forEach((value, x) => path.lineTo(frame.gutter + x + 0.5, y(value)));
      const area = new Path2D(path);
      area.lineTo(frame.gutter + line.rates.length, height);
      area.lineTo(frame.gutter, height);
      pen.fillStyle = color(line.tone);
      pen.globalAlpha = 0.16;
      pen.fill(area);
      pen.globalAlpha = 1;
      pen.strokeStyle = color(line.tone);
      pen.lineWidth = 1.3;
      pen.stroke(path);
    }
    pen.font = `11px ${FONT}`;
    pen.fillStyle = color("soft");
    pen.textAlign = "right";
    if (most > 1) pen.fillText(speed(most), frame.gutter - 8, top + 9);
    pen.fillText("0", frame.gutter - 8, height - 1);
    pen.textAlign = "left";
    if (frame.gutter > 130) {
      pen.fillStyle = color("ink");
      pen.font = `600 12px ${FONT}`;
      pen.fillText("Bytes/s", 0, top + 10);
      pen.font = `11px ${FONT}`;
      // names of connections are too long, and stand above
      lines.filter((line) => line.name.length < 12).forEach((line, i) => {
        pen.fillStyle = color(line.tone);
        pen.fillRect(0, top + 19 + i * 15, 8, 8);
        pen.fillStyle = color("soft");
        pen.fillText(line.name, 13, top + 27 + i * 15);
      });
    }
    const said = lines.map((line) => `${line.name} ${bytes(Math.round(line.amounts.within(view.from, view.to)))}, at most ${speed(line.rates.reduce((a, b) => Math.max(a, b), 0))}`);
    canvas.setAttribute("aria-label", `Bytes a second of ${what}, from ${moment(view.from, view.to - view.from)} to ${moment(view.to, view.to - view.from)}: ${said.join("; ") || "none"}.`);
    table.refresh();
  }
  canvas.addEventListener("pointermove", (event) => {
    const t = timeAt(event, canvas);
    if (t < view.from || t > view.to) { showTip(event, null); return; }
    const pixel = (view.to - view.from) / innerWidthOf(canvas);
    showTip(event, tipOf(`at ${moment(t, view.to - view.from)}`, streams().map((stream) => `${stream.name} ${speed(stream.amounts.within(t - pixel, t + pixel) / (2 * pixel) * 1e9)}`)));
  });
  canvas.addEventListener("pointerleave", (event) => showTip(event, null));
  movable(canvas);
  viewers.push(lazily(draw));
  redraws.push(draw);
  return { canvas, draw, table: table.box };
}
