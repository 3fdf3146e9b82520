// Draws what each process did: a lane of its MPI calls above one of its socket calls.
let LANE = 15;
const ROW_GAP = 9;
/** @typedef {{ process: number, y: number, lanes: { lane: Lane, y: number }[] }} Row */

/** @returns {{ rows: Row[], height: number }} */
function layout() {
  LANE = Math.max(13, Math.min(26, Math.floor(330 / Math.max(1, lanes.length)) - 5));
  const hosts = data.hosts.length > 1;
  let y = 0;
  /** @type {Row[]} */
  const rows = [];
  // ranks in their order, then who else there was
  const rank = (/** @type {number} */ index) => data.processes[index].rank ?? 1e9;
  const order = data.processes.map((_, index) => index).sort((a, b) => rank(a) - rank(b) || a - b);
  for (const index of order) {
    const mine = [laneBy.get(index * 2 + 1), laneBy.get(index * 2)].filter((lane) => lane !== undefined);
    if (!mine.length) continue;
    rows.push({ process: index, y, lanes: mine.map((lane, at) => ({ lane, y: y + at * (LANE + 1) })) });
    y += Math.max(mine.length * (LANE + 1), hosts ? 27 : 0) + ROW_GAP;
  }
  return { rows, height: Math.max(1, y) };
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Row} row
 * @param {number} top
 */
function drawNames(pen, row, top) {
  const process = data.processes[row.process];
  const kinds = frame.gutter > 130 && row.lanes.length > 1 ? 52 : 0;
  const room = frame.gutter - 10 - kinds;
  const tall = data.hosts.length > 1 || row.lanes.length > 1;
  const line = row.y - top + (tall ? 11 : LANE / 2 + 4);
  pen.textAlign = "left";
  pen.fillStyle = color("ink");
  pen.font = `600 12px ${FONT}`;
  pen.fillText(fitText(pen, process.name, room), 0, line);
  pen.fillStyle = color("soft");
  pen.font = `11px ${FONT}`;
  const host = data.hosts[process.host];
  if (host && data.hosts.length > 1) pen.fillText(fitText(pen, host.name, room), 0, line + 14);
  if (!kinds) return;
  pen.textAlign = "right";
  row.lanes.forEach(({ lane, y }) => pen.fillText(lane.mpi ? "MPI" : "sockets", frame.gutter - 8, y - top + LANE / 2 + 4));
  pen.textAlign = "left";
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Lane} lane
 * @param {number} y
 * @param {number} width
 */
function drawLane(pen, lane, y, width) {
  const tones = tonesOf(lane.mpi).map(color);
  const inner = width - frame.gutter - frame.right;
  const span = view.to - view.from;
  const scale = inner / span;
  pen.fillStyle = color("fill");
  pen.fillRect(frame.gutter, y, inner, LANE);
  const first = firstAt(lane.kept.start, lane.longest, view.from);
  const { start, took } = lane.kept;
  let within = 0;
  // one by one each is seen, however short: where they are many, they would look like much more time than they take
  const few = inner / 4;
  for (let i = first; i < start.length && start[i] <= view.to && within <= few; i++) within++;
  const exact = lane.complete && within <= few;
  if (!exact) drawShares(pen, lane, y, inner, tones);
  for (let i = first; i < start.length && start[i] <= view.to; i++) {
    if (start[i] + took[i] < view.from) continue;
    const size = took[i] * scale;
    if (!exact && size < 3) continue;
    const a = Math.max(frame.gutter, frame.gutter + (start[i] - view.from) * scale);
    const b = Math.min(width - frame.right, frame.gutter + (start[i] + took[i] - view.from) * scale);
    const tone = tones[lane.kept.class[i]];
    pen.fillStyle = tone;
    pen.fillRect(a, y, Math.max(0.7, b - a - (size > 4 ? 0.6 : 0)), LANE);
    if (b - a > 30) {
      pen.fillStyle = inkOn(channels(tone));
      pen.font = `10.5px ${FONT}`;
      const name = data.call_names[lane.kept.call[i]];
      const whole = pen.measureText(name).width <= b - a - 8;
      const text = whole ? name : fitText(pen, name.replace(/^MPI_/, ""), b - a - 8);
      if (text.length > 4 || whole) pen.fillText(text, a + 4, y + LANE / 2 + 4);
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Lane} lane
 * @param {number} y
 * @param {number} inner
 * @param {string[]} tones
 */
function drawShares(pen, lane, y, inner, tones) {
  const pixel = (view.to - view.from) / inner;
  /** @type {number[][]} */
  const paths = tones.map(() => []);
  for (let x = 0; x < inner; x++) {
    const shares = sharesAt(lane, view.from + x * pixel, view.from + (x + 1) * pixel);
    let bottom = y + LANE;
    for (let c = 0; c < shares.length; c++) {
      if (shares[c] <= 0) continue;
      const height = Math.min(bottom - y, Math.max(0.8, shares[c] * LANE));
      paths[c].push(frame.gutter + x, bottom - height, height);
      bottom -= height;
    }
  }
  paths.forEach((path, c) => {
    pen.fillStyle = tones[c];
    for (let i = 0; i < path.length; i += 3) pen.fillRect(path[i], path[i + 1], 1.02, path[i + 2]);
  });
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 */
function drawAxis(canvas, width) {
  const pen = fit(canvas, width, 22);
  const inner = width - frame.gutter - frame.right;
  const { ticks, step } = niceTicks(view.from, view.to, Math.max(2, inner / 110));
  pen.font = `11px ${FONT}`;
  pen.textAlign = "center";
  for (const t of ticks) {
    const x = frame.gutter + (t - view.from) / (view.to - view.from) * inner;
    pen.fillStyle = color("line");
    pen.fillRect(x, 0, 1, 4);
    pen.fillStyle = color("soft");
    const text = tickText(t, step);
    const half = pen.measureText(text).width / 2;
    pen.fillText(text, Math.min(Math.max(x, half), width - half), 17);
  }
}

/**
 * What was at a moment in a lane.
 * @param {Lane} lane
 * @param {number} t
 */
function describe(lane, t) {
  const pixel = (view.to - view.from) / 900;
  const { start, took, call, other, bytes: sizes, calls_in: inside, error, thread } = lane.kept;
  let best = -1;
  for (let i = firstAt(start, lane.longest, t); i < start.length && start[i] <= t + pixel; i++) {
    if (start[i] + took[i] < t - pixel) continue;
    if (best < 0 || Math.abs(start[i] + took[i] / 2 - t) < Math.abs(start[best] + took[best] / 2 - t)) best = i;
  }
  const process = data.processes[lane.process];
  const names = data.timeline.classes[lane.mpi ? 1 : 0];
  if (best >= 0 && (lane.complete || took[best] > 2 * pixel)) {
    const [, tid, name] = data.threads[thread[best]] || [0, 0, ""];
    const lines = [`${ns(took[best])}, from ${moment(start[best], took[best])}`];
    if (names[lane.kept.class[best]] === "idle") lines.push("ended with nothing from anybody");
    if (sizes[best] > 0) lines.push(bytes(sizes[best]));
    if (lane.mpi && other[best] > 0) lines.push(`with rank ${other[best] - 1}`);
    if (!lane.mpi && other[best] > 0) lines.push(data.sockets[other[best] - 1] || `socket ${other[best] - 1}`);
    if (inside[best] > 1) lines.push(`${count(inside[best])} calls that found nothing`);
    if (error[best] > 0) lines.push(`error ${error[best]}`);
    const tip = tipOf(`${process.name}: ${data.call_names[call[best]]}`, lines);
    tip.append(el("div", { class: "soft" }, `thread ${tid} ${name}${data.hosts.length > 1 ? ` on ${data.hosts[process.host]?.name ?? "?"}` : ""}`));
    return tip;
  }
  const width = Math.max(data.timeline.bucket, pixel);
  const shares = sharesAt(lane, t - width / 2, t + width / 2);
  const lines = shares.flatMap((share, c) => (share > 0 ? [`${names[c]} ${percent(share)}`] : []));
  return tipOf(`${process.name}, ${ns(width)} at ${moment(t, width)}`, lines.length ? lines : ["no call"]);
}
