// What each process did when, and under it what TCP did to one connection, on one axis of time.
const GUTTER = 150;
const RIGHT = 14;
const view = { from: 0, to: Math.max(1, data.span) };
const lanes = [];
const viewers = [];
let chosen = null;

function show(from, to) {
  const least = Math.min(1000, data.span);
  const span = Math.min(Math.max(to - from, least), Math.max(1, data.span));
  view.from = Math.min(Math.max(0, from), data.span - span);
  view.to = view.from + span;
  viewers.forEach((viewer) => viewer());
}
function zoom(factor, at) {
  const center = at === undefined ? (view.from + view.to) / 2 : at;
  show(center - (center - view.from) * factor, center + (view.to - center) * factor);
}

async function loadLanes() {
  for (const [index, process] of data.processes.entries()) {
    for (const lane of process.lanes) {
      const sums = [];
      for (const packed of lane.shares) {
        const shares = await unpack(packed, Uint8Array);
        if (!shares.length) { sums.push(null); continue; }
        const sum = new Uint32Array(shares.length + 1);
        for (let i = 0; i < shares.length; i++) sum[i + 1] = sum[i] + shares[i];
        sums.push(sum);
      }
      const kinds = { start: Float64Array, took: Float64Array, thread: Uint32Array, call: Uint8Array, other: Uint32Array, bytes: Float64Array, calls_in: Uint32Array, error: Uint32Array };
      const kept = {};
      for (const [key, Kind] of Object.entries(kinds)) kept[key] = await unpack(lane[key], Kind);
      let longest = 0;
      for (const took of kept.took) longest = Math.max(longest, took);
      lanes.push({ process: index, mpi: lane.mpi, sums, kept, longest, complete: lane.kept === lane.calls, calls: lane.calls, shortest: lane.shortest });
    }
  }
}

/** Index of the first kept call that may reach a moment. */
function firstAt(lane, t) {
  const { start } = lane.kept;
  let low = 0, high = start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < t - lane.longest) low = middle + 1; else high = middle;
  }
  return low;
}
const CLASS_OF = {};
function classOf(lane, call) {
  const key = data.call_names[call];
  if (key in CLASS_OF) return CLASS_OF[key];
  let found;
  if (!lane.mpi) {
    if (call >= 20 && call < 40) found = 0; else if (call >= 40 && call < 60) found = 1; else if (call >= 60 && call < 67) found = 2; else found = 3;
  } else if (/send|start/i.test(key) && !/_init$/.test(key)) found = 0;
  else if (/(I|_|M|m)recv$/i.test(key)) found = 1;
  else if (/wait|test|probe/i.test(key)) found = 2;
  else if (call >= 170 && call < 210) found = 3;
  else if (call >= 210) found = 4;
  else found = 5;
  return (CLASS_OF[key] = found);
}

/** Shares of the classes between two moments. */
function sharesAt(lane, from, to) {
  const { bucket, buckets } = data.timeline;
  const a = Math.max(0, Math.min(buckets - 1, Math.floor(from / bucket)));
  const b = Math.max(a + 1, Math.min(buckets, Math.ceil(to / bucket)));
  return lane.sums.map((sum) => (sum ? (sum[b] - sum[a]) / (255 * (b - a)) : 0));
}

let LANE = 15;
const ROW_GAP = 9;
function layout() {
  LANE = Math.max(13, Math.min(26, Math.floor(330 / Math.max(1, lanes.length)) - 5));
  let y = 0;
  const rows = [];
  // ranks in their order, then who else there was
  const order = data.processes.map((process, index) => index).sort((a, b) => (data.processes[a].rank ?? 1e9) - (data.processes[b].rank ?? 1e9) || a - b);
  order.forEach((index) => {
    const mine = lanes.map((lane, at) => [lane, at]).filter(([lane]) => lane.process === index);
    if (!mine.length) return;
    rows.push({ process: index, y, lanes: mine.map(([lane], at) => ({ lane, y: y + at * (LANE + 1) })) });
    y += mine.length * (LANE + 1) + ROW_GAP;
  });
  return { rows, height: y };
}

function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

function drawLane(pen, lane, y, width, tones) {
  const inner = width - GUTTER - RIGHT;
  const span = view.to - view.from;
  const scale = inner / span;
  const pixel = span / inner;
  pen.fillStyle = color("fill");
  pen.fillRect(GUTTER, y, inner, LANE);
  const first = firstAt(lane, view.from);
  const { start, took, call } = lane.kept;
  let within = 0;
  for (let i = first; i < start.length && start[i] <= view.to && within <= 6 * inner; i++) within++;
  const exact = lane.complete && within <= 3 * inner;
  if (!exact) {
    const paths = tones.map(() => []);
    for (let x = 0; x < inner; x++) {
      const shares = sharesAt(lane, view.from + x * pixel, view.from + (x + 1) * pixel);
      let bottom = y + LANE;
      for (let c = 0; c < shares.length; c++) {
        if (shares[c] <= 0) continue;
        const height = Math.min(bottom - y, Math.max(0.8, shares[c] * LANE));
        paths[c].push(GUTTER + x, bottom - height, height);
        bottom -= height;
      }
    }
    paths.forEach((path, c) => {
      pen.fillStyle = tones[c];
      for (let i = 0; i < path.length; i += 3) pen.fillRect(path[i], path[i + 1], 1.02, path[i + 2]);
    });
  }
  for (let i = first; i < start.length && start[i] <= view.to; i++) {
    if (start[i] + took[i] < view.from) continue;
    const size = took[i] * scale;
    if (!exact && size < 3) continue;
    const a = Math.max(GUTTER, GUTTER + (start[i] - view.from) * scale);
    const b = Math.min(width - RIGHT, GUTTER + (start[i] + took[i] - view.from) * scale);
    pen.fillStyle = tones[classOf(lane, call[i])];
    pen.fillRect(a, y, Math.max(0.7, b - a - (size > 4 ? 0.6 : 0)), LANE);
    if (b - a > 62) {
      pen.fillStyle = "#fff";
      pen.font = `10.5px ${FONT}`;
      pen.fillText(data.call_names[call[i]], a + 4, y + LANE / 2 + 4, b - a - 8);
    }
  }
}

function niceTicks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough) || power;
  const ticks = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) ticks.push(t);
  return { ticks, step };
}
function niceMax(value, least) {
  const { step } = niceTicks(0, Math.max(value, least), 4);
  return Math.ceil(Math.max(value, least) / step) * step;
}
function tickText(t, step) {
  const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  return `${(t / unit[0]).toFixed(Math.min(digits, 6))} ${unit[1]}`;
}

async function timeline() {
  const made = section("time", "What each process did, and what TCP did to it", "Time line", null);
  await loadLanes();
  const note = el("p", { class: "note", id: "merged" });
  made.append(note);
  if (!lanes.length) { made.append(el("div", { class: "card empty" }, "No call was recorded.")); return; }
  const complete = lanes.every((lane) => lane.complete);
  const cut = lanes.filter((lane) => !lane.complete);
  const all = lanes.reduce((sum, lane) => sum + lane.calls, 0);
  const kept = lanes.reduce((sum, lane) => sum + lane.kept.start.length, 0);
  note.textContent = `Drag to move, Ctrl and wheel to zoom, double-click to zoom in, drag in the strip on top to choose a part. ` + (complete
    ? `All ${count(all)} calls are here one by one; where there are more than pixels, heights show shares of the time.`
    : `${count(all)} calls are merged into intervals of ${ns(data.timeline.bucket)} whose heights show the share of the time of each class; ${count(kept)} of them are kept one by one, the longest of each process (all of over ${ns(Math.max(...cut.map((lane) => lane.shortest)))}). calls.parquet has all.`);
  const mini = el("canvas", { class: "mini" });
  const main = el("canvas", { tabindex: "0", "aria-label": "Calls of each process over time" });
  const axis = el("canvas", {});
  const { rows, height } = layout();
  const shown = Math.min(height, 430);
  const filler = el("div", { style: { height: `${height - shown}px` } });
  const sticky = el("div", { class: "sticky" }, main);
  const scroller = el("div", { class: "rows", style: { maxHeight: "430px" } }, sticky, filler);
  const legend = (names, tones, mpi) => names.map((name, i) => !lanes.some((lane) => lane.mpi === mpi && lane.sums[i] && lane.sums[i].at(-1) > 0) ? null : el("span", {}, el("i", { class: "swatch", style: { background: `var(--${tones[i]})` } }), name));
  const box = el("div", { id: "timeline" }, mini, scroller, axis);
  const where = el("span", { class: "note", id: "where" });
  const button = (text, title, act) => el("button", { type: "button", title, onclick: act }, text);
  made.append(el("div", { class: "card" },
    el("div", { class: "bar-head", style: { marginBottom: "8px" } },
      el("div", { class: "legend-row" }, data.totals.mpi ? legend(data.timeline.classes[1], MPI_COLORS, true) : null, legend(data.timeline.classes[0], SOCKET_COLORS, false)),
      el("div", { class: "bar-head" }, where, el("div", { class: "tools" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("⟲", "All of the run", () => show(0, data.span))))),
    box, tcpPart()));

  const laneTones = (lane) => (lane.mpi ? MPI_COLORS : SOCKET_COLORS).map(color);
  function drawMain() {
    const width = scroller.clientWidth;
    const pen = fit(main, width, shown);
    const top = scroller.scrollTop;
    pen.textBaseline = "alphabetic";
    for (const row of rows) {
      if (row.y - top > shown || row.y - top < -60) continue;
      pen.fillStyle = color("ink");
      pen.font = `600 12px ${FONT}`;
      const process = data.processes[row.process];
      pen.fillText(process.name, 0, row.y - top + LANE / 2 + 4, GUTTER - 60);
      pen.fillStyle = color("faint");
      pen.font = `11px ${FONT}`;
      const host = data.hosts[process.host];
      if (host && row.lanes.length > 1) pen.fillText(host.name, 0, row.y - top + LANE * 1.5 + 5, GUTTER - 60);
      pen.textAlign = "right";
      row.lanes.forEach(({ lane, y }) => pen.fillText(lane.mpi ? "MPI" : "sockets", GUTTER - 8, y - top + LANE / 2 + 4));
      pen.textAlign = "left";
      row.lanes.forEach(({ lane, y }) => drawLane(pen, lane, y - top, width, laneTones(lane)));
    }
  }
  function drawAxis() {
    const width = scroller.clientWidth;
    const pen = fit(axis, width, 22);
    const inner = width - GUTTER - RIGHT;
    const { ticks, step } = niceTicks(view.from, view.to, Math.max(3, inner / 110));
    pen.font = `11px ${FONT}`;
    pen.textAlign = "center";
    for (const t of ticks) {
      const x = GUTTER + (t - view.from) / (view.to - view.from) * inner;
      pen.fillStyle = color("line");
      pen.fillRect(x, 0, 1, 5);
      pen.fillStyle = color("soft");
      pen.fillText(tickText(t, step), Math.min(Math.max(x, GUTTER + 14), width - 24), 17);
    }
  }
  function drawMini() {
    const width = scroller.clientWidth;
    const pen = fit(mini, width, 34);
    const inner = width - GUTTER - RIGHT;
    pen.fillStyle = color("fill");
    pen.fillRect(GUTTER, 0, inner, 34);
    pen.fillStyle = color("faint");
    pen.font = `11px ${FONT}`;
    pen.fillText("all of the run", 0, 21);
    const sockets = lanes.filter((lane) => !lane.mpi);
    const used = sockets.length ? sockets : lanes;
    for (let x = 0; x < inner; x++) {
      const sum = [0, 0, 0, 0];
      used.forEach((lane) => sharesAt(lane, data.span * x / inner, data.span * (x + 1) / inner).forEach((share, c) => { sum[Math.min(c, 3)] += share; }));
      let bottom = 34;
      sum.forEach((share, c) => {
        const h = Math.min(bottom, share > 0 ? Math.max(0.7, share / used.length * 34) : 0);
        pen.fillStyle = miniTones[c];
        pen.fillRect(GUTTER + x, bottom - h, 1.02, h);
        bottom -= h;
      });
    }
  }
  let miniTones = SOCKET_COLORS.map(color);
  let miniImage = null;
  function drawWindow() {
    const pen = mini.getContext("2d");
    const width = scroller.clientWidth;
    if (!miniImage || miniImage.width !== mini.width) { drawMini(); miniImage = pen.getImageData(0, 0, mini.width, mini.height); }
    pen.putImageData(miniImage, 0, 0);
    const inner = width - GUTTER - RIGHT;
    const a = GUTTER + view.from / data.span * inner;
    const b = Math.max(a + 2, GUTTER + view.to / data.span * inner);
    pen.fillStyle = color("bg");
    pen.globalAlpha = 0.65;
    pen.fillRect(GUTTER, 0, a - GUTTER, 34);
    pen.fillRect(b, 0, width - RIGHT - b, 34);
    pen.globalAlpha = 1;
    pen.strokeStyle = color("ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(a + 0.75, 0.75, Math.max(1, b - a - 1.5), 32.5);
  }
  function drawAll() {
    drawMain();
    drawAxis();
    drawWindow();
    where.textContent = `${moment(view.from, view.to - view.from)} to ${moment(view.to, view.to - view.from)}, ${ns(view.to - view.from)}`;
  }
  viewers.push(lazily(drawAll));
  redraws.push(() => { miniTones = SOCKET_COLORS.map(color); miniImage = null; drawAll(); });
  scroller.addEventListener("scroll", drawMain);
  drawAll();

  const timeAt = (event, target) => {
    const box = target.getBoundingClientRect();
    const inner = box.width - GUTTER - RIGHT;
    return view.from + (event.clientX - box.left - GUTTER) / inner * (view.to - view.from);
  };
  movable(main, timeAt);
  main.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 8;
    const act = { ArrowLeft: () => show(view.from - step, view.to - step), ArrowRight: () => show(view.from + step, view.to + step), "+": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, data.span) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  // the strip: drag to choose
  const miniTime = (event) => {
    const box = mini.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left - GUTTER) / (box.width - GUTTER - RIGHT), 0), 1) * data.span;
  };
  let anchor = null;
  mini.addEventListener("pointerdown", (event) => { mini.setPointerCapture(event.pointerId); anchor = miniTime(event); });
  mini.addEventListener("pointermove", (event) => {
    if (anchor === null) return;
    const t = miniTime(event);
    if (Math.abs(t - anchor) > data.span / 400) show(Math.min(anchor, t), Math.max(anchor, t));
  });
  mini.addEventListener("pointerup", (event) => {
    const t = miniTime(event);
    if (anchor !== null && Math.abs(t - anchor) <= data.span / 400) { const half = (view.to - view.from) / 2; show(t - half, t + half); }
    anchor = null;
  });
  // what is under the pointer
  main.addEventListener("pointermove", (event) => {
    const box = main.getBoundingClientRect();
    const y = event.clientY - box.top + scroller.scrollTop;
    const t = timeAt(event, main);
    const hit = rows.flatMap((row) => row.lanes).find((each) => y >= each.y && y < each.y + LANE + 1);
    showTip(event, hit && t >= view.from && t <= view.to ? describe(hit.lane, t) : null);
  });
  main.addEventListener("pointerleave", (event) => showTip(event, null));
}

/** Dragging moves, Ctrl and wheel zooms, a double click zooms in. */
function movable(target, timeAt) {
  let held = null;
  target.addEventListener("pointerdown", (event) => { if (event.button === 0) { target.setPointerCapture(event.pointerId); held = { x: event.clientX, from: view.from, to: view.to }; } });
  target.addEventListener("pointermove", (event) => {
    if (!held) return;
    const inner = target.getBoundingClientRect().width - GUTTER - RIGHT;
    const by = (held.x - event.clientX) / inner * (held.to - held.from);
    show(held.from + by, held.to + by);
  });
  const drop = () => { held = null; };
  target.addEventListener("pointerup", drop);
  target.addEventListener("pointercancel", drop);
  target.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event, target)); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); const by = event.deltaX / 900 * (view.to - view.from); show(view.from + by, view.to + by); }
  }, { passive: false });
  target.addEventListener("dblclick", (event) => zoom(0.25, timeAt(event, target)));
}

function describe(lane, t) {
  const pixel = (view.to - view.from) / 900;
  const { start, took, call, other, bytes: sizes, calls_in: inside, error, thread } = lane.kept;
  let best = -1;
  for (let i = firstAt(lane, t); i < start.length && start[i] <= t + pixel; i++) {
    if (start[i] + took[i] < t - pixel) continue;
    if (best < 0 || Math.abs(start[i] + took[i] / 2 - t) < Math.abs(start[best] + took[best] / 2 - t)) best = i;
  }
  const process = data.processes[lane.process];
  if (best >= 0 && (lane.complete || took[best] > 2 * pixel)) {
    const [, tid, name] = data.threads[thread[best]] || [0, 0, ""];
    const lines = [`${ns(took[best])}, from ${moment(start[best], took[best])}`];
    if (sizes[best] > 0) lines.push(bytes(sizes[best]));
    if (lane.mpi && other[best] > 0) lines.push(`with rank ${other[best] - 1}`);
    if (!lane.mpi && other[best] > 0) lines.push(data.sockets[other[best] - 1] || `socket ${other[best] - 1}`);
    if (inside[best] > 1) lines.push(`${count(inside[best])} calls that found nothing`);
    if (error[best] > 0) lines.push(`error ${error[best]}`);
    return el("div", { class: "tip" }, el("b", {}, `${process.name}: ${data.call_names[call[best]]}`), lines.map((line) => el("div", {}, line)), el("div", { class: "soft" }, `thread ${tid} ${name}`));
  }
  const width = Math.max(data.timeline.bucket, pixel);
  const shares = sharesAt(lane, t - width / 2, t + width / 2);
  const names = data.timeline.classes[lane.mpi ? 1 : 0];
  const lines = shares.map((share, c) => [share, names[c]]).filter(([share]) => share > 0).map(([share, name]) => `${name} ${percent(share)}`);
  return tipOf(`${process.name}, ${ns(width)} at ${moment(t, width)}`, lines.length ? lines : ["no call"]);
}

// ---- TCP under it ----------------------------------------------------------------------------------------------------
const directions = [];
data.connections.forEach((connection, index) => {
  for (const way of ["there", "back"]) {
    const one = connection[way];
    if (one.series) directions.push({ connection, index, way, one, name: way === "there" ? `${connection.names[0]} → ${connection.names[1]}` : `${connection.names[1]} → ${connection.names[0]}` });
  }
});
let tcpChart = null;
let chooseDirection = () => {};

function tcpPart() {
  if (!directions.length) return el("p", { class: "tcp-about" }, "No TCP connection was looked at, so there is no window to show.");
  const about = el("p", { class: "tcp-about" });
  const box = el("div", { id: "tcp-chart", style: { height: "300px" } });
  const select = el("select", { "aria-label": "Connection" }, directions.map((each, i) => {
    const again = each.one.retransmissions ? `, ${many(each.one.retransmissions, "segment")} again` : "";
    return el("option", { value: i }, `${each.name} (${each.connection.addresses[each.way === "there" ? 1 : 0] || "?"}), ${bytes(each.one.bytes)}${again}`);
  }));
  let series = null;
  const most = directions.reduce((best, each, i) => {
    const worth = (one) => [one.retransmissions + one.restarts.length, one.bytes];
    const [a, b] = [worth(each.one), worth(directions[best].one)];
    return a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]) ? i : best;
  }, 0);
  chooseDirection = async (i) => {
    chosen = directions[i];
    select.value = String(i);
    const s = chosen.one.series;
    const kinds = { at: Float64Array, cwnd_low: Uint32Array, cwnd_high: Uint32Array, ssthresh: Uint32Array, flight: Uint32Array, rtt: Uint32Array, free: Uint32Array, again: Uint32Array, timeouts: Uint32Array };
    const loaded = {};
    for (const [key, Kind] of Object.entries(kinds)) loaded[key] = await unpack(s[key], Kind);
    series = loaded;
    const one = chosen.one;
    about.textContent = [
      one.congestion || "congestion control not seen", `segments of ${bytes(one.mss)}`, `round trip at least ${us(chosen.connection.min_rtt)}, mean ${us(one.mean_rtt)}`,
      `${many(one.retransmissions, "segment")} sent again, ${many(one.timeouts, "timeout")}`, one.restarts.length ? `window collapsed after idle ${one.collapses} times` : null,
      `from ${many(s.seen[0], "sample")} and ${many(s.seen[1], "segment that arrived", "segments that arrived")}` + (s.joined > 1 ? `; up to ${s.joined} of them in one point, drawn as lowest and highest` : ""),
    ].filter(Boolean).join(" · ");
    if (tcpChart) tcpChart.draw();
    else {
      tcpChart = chart(box, () => tcpOption(series));
      movable(box, (event, target) => { const r = target.getBoundingClientRect(); return view.from + (event.clientX - r.left - GUTTER) / (r.width - GUTTER - RIGHT) * (view.to - view.from); });
      viewers.push(lazily(() => tcpChart.draw()));
    }
    document.documentElement.dataset.tcp = String(s.points);
  };
  select.addEventListener("change", () => chooseDirection(Number(select.value)));
  // the box has its size only when it is in the page
  lazily(() => chooseDirection(most))();
  return el("div", { style: { marginTop: "14px", borderTop: "1px solid var(--line)", paddingTop: "12px" } },
    el("div", { class: "bar-head" }, el("h3", {}, "What TCP did to"), select,
      el("div", { class: "legend-row" }, [["send", "congestion window"], ["other", "slow-start threshold"], ["receive", "in flight"], ["bad", "sent again ▲, after a timeout ◆"], ["wait", "collapsed after idle ┊"], ["mpi-collective", "round trip"]]
        .map(([tone, name]) => el("span", {}, el("i", { class: "swatch", style: { background: `var(--${tone})` } }), name)))),
    box, about);
}

function tcpOption(s) {
  const mss = chosen.one.mss || 1448;
  let a = 0, b = s.at.length;
  while (a < b - 1 && s.at[a + 1] < view.from) a++;
  while (b > a + 1 && s.at[b - 1] > view.to) b--;
  b = Math.min(s.at.length, b + 1);
  const cwnd = [], ssthresh = [], flight = [], rtt = [], again = [], timeouts = [];
  let top = 0;
  for (let i = a; i < b; i++) {
    const t = s.at[i];
    if (s.cwnd_high[i] !== s.cwnd_low[i]) cwnd.push([t, s.cwnd_high[i] * mss]);
    cwnd.push([t, s.cwnd_low[i] * mss]);
    top = Math.max(top, s.cwnd_high[i] * mss, s.flight[i]);
    if (s.ssthresh[i] > 0) { ssthresh.push([t, s.ssthresh[i] * mss]); top = Math.max(top, Math.min(s.ssthresh[i] * mss, 2 * top)); }
    if (s.rtt[i] > 0) { rtt.push([t, s.rtt[i] / 1000]); flight.push([t, s.flight[i]]); }
    if (s.timeouts[i] > 0) timeouts.push([t, 0, s.timeouts[i]]);
    if (s.again[i] > s.timeouts[i]) again.push([t, 0, s.again[i] - s.timeouts[i]]);
  }
  again.concat(timeouts).forEach((mark) => { mark[1] = top * 1.06; });
  const restarts = chosen.one.restarts.filter((r) => r[0] >= view.from && r[0] <= view.to);
  const { ticks, step } = niceTicks(view.from, view.to, 9);
  const x = (grid, labels) => ({ type: "value", gridIndex: grid, min: view.from, max: view.to, splitLine: { show: false }, axisLine: { lineStyle: { color: color("line") } }, axisTick: { customValues: ticks, show: labels }, axisLabel: { show: labels, customValues: ticks, formatter: (t) => tickText(t, step), color: color("soft"), fontSize: 11, hideOverlap: true } });
  const y = (grid, name, formatter, extra) => ({ type: "value", gridIndex: grid, min: 0, name, nameLocation: "middle", nameGap: 62, nameTextStyle: { color: color("faint"), fontSize: 11 }, splitNumber: grid ? 2 : 4, axisLabel: { color: color("soft"), fontSize: 11, formatter }, splitLine: { lineStyle: { color: color("line") } }, ...extra });
  const line = (name, rows, tone, style, extra) => ({ name, type: "line", data: rows, showSymbol: rows.length < 60, symbolSize: 3, step: "end", lineStyle: { width: 1.4, color: color(tone), ...style }, itemStyle: { color: color(tone) }, emphasis: { disabled: true }, ...extra });
  const marks = (name, rows, symbol) => ({ name, type: "scatter", data: rows, symbol, symbolSize: 9, itemStyle: { color: color("bad") }, tooltip: { trigger: "item" } });
  return {
    grid: [{ left: GUTTER, right: RIGHT, top: 14, height: 164 }, { left: GUTTER, right: RIGHT, top: 202, height: 66 }],
    xAxis: [x(0, false), x(1, true)],
    yAxis: [y(0, "window", (v) => bytes(v), { max: niceMax(top * 1.14, mss) }), y(1, "round trip", (v) => `${Number(v.toPrecision(3))} ms`)],
    axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: color("faint") }, label: { show: false } },
    tooltip: {
      ...tipStyle(), trigger: "axis", formatter: (items) => {
        const list = Array.isArray(items) ? items : [items];
        const seen = new Set();
        const lines = [];
        for (const item of list) {
          if (seen.has(item.seriesName)) continue;
          seen.add(item.seriesName);
          const v = item.data[1];
          if (item.seriesType === "scatter") lines.push(`${item.seriesName}: ${many(item.data[2], "segment")}`);
          else if (item.seriesName === "round trip") lines.push(`round trip ${us(v * 1000)}`);
          else lines.push(item.seriesName === "in flight" ? `in flight ${bytes(v)}` : `${item.seriesName} ${bytes(v)} (${count(Math.round(v / mss))} segments)`);
        }
        return list.length ? tipOf(`at ${moment(list[0].data[0], view.to - view.from)}`, lines) : "";
      },
    },
    series: [
      line("congestion window", cwnd, "send", {}, { areaStyle: { color: color("send"), opacity: 0.09 }, markLine: { symbol: "none", silent: true, label: { show: false }, lineStyle: { color: color("wait"), width: 1, type: [4, 3] }, data: restarts.map((r) => ({ xAxis: r[0] })) } }),
      line("slow-start threshold", ssthresh, "other", { type: [5, 3], width: 1.2 }, { showSymbol: false }),
      line("in flight", flight, "receive", { width: 1 }),
      marks("sent again", again, "triangle"), marks("sent again after a timeout", timeouts, "diamond"),
      { ...line("round trip", rtt, "mpi-collective", {}), xAxisIndex: 1, yAxisIndex: 1 },
    ],
  };
}
