// Arrows from sends to the receives that take what they sent, where so few are in the window that they can be told apart.
const ARROWS = 250;
const flights = { start: new Float64Array(0), took: new Float64Array(0), from: new Uint32Array(0), to: new Uint32Array(0), longest: 0, shown: true };

async function loadFlights() {
  const packed = data.flights;
  flights.start = await unpack(packed.start, Float64Array);
  flights.took = await unpack(packed.took, Float64Array);
  flights.from = await unpack(packed.from, Uint32Array);
  flights.to = await unpack(packed.to, Uint32Array);
  for (const took of flights.took) flights.longest = Math.max(flights.longest, took);
}

/** Those in the window; null: too many to be drawn. */
function flightsInView() {
  const { start, took, longest } = flights;
  const found = [];
  for (let i = firstAt(start, longest, view.from); i < start.length && start[i] <= view.to; i++) {
    if (start[i] + took[i] < view.from) continue;
    found.push(i);
    if (found.length > ARROWS) return null;
  }
  return found;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Row[]} rows
 * @param {number} top
 * @param {number} width
 */
function drawArrows(pen, rows, top, width) {
  const found = flights.shown ? flightsInView() : [];
  if (!found) return;
  /** @type {Map<number, number>} */
  const place = new Map();
  for (const row of rows) for (const { lane, y } of row.lanes) place.set(row.process * 2 + Number(lane.mpi), y - top + LANE / 2);
  const scale = (width - frame.gutter - frame.right) / (view.to - view.from);
  const x = (/** @type {number} */ t) => frame.gutter + (t - view.from) * scale;
  pen.save();
  pen.beginPath();
  pen.rect(frame.gutter, 0, width - frame.gutter - frame.right, 1e6);
  pen.clip();
  pen.strokeStyle = pen.fillStyle = color("ink");
  pen.lineWidth = 1;
  pen.globalAlpha = found.length > 60 ? 0.5 : 0.8;
  for (const i of found) {
    const [y0, y1] = [place.get(flights.from[i]), place.get(flights.to[i])];
    if (y0 === undefined || y1 === undefined) continue;
    const [x0, x1] = [x(flights.start[i]), x(flights.start[i] + flights.took[i])];
    const turn = Math.atan2(y1 - y0, x1 - x0);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x1, y1);
    for (const side of [-0.4, 0.4]) pen.lineTo(x1 - 7 * Math.cos(turn + side), y1 - 7 * Math.sin(turn + side));
    pen.fill();
  }
  pen.restore();
}
