// What each process did over time, as wide as the window.
const TALLEST = 430;

/** What is merged, and what is not. */
function mergedNote() {
  const cut = lanes.filter((lane) => !lane.complete);
  const all = sum(lanes.map((lane) => lane.calls));
  const single = sum(lanes.map((lane) => lane.kept.start.length));
  const calls = !cut.length
    ? `All ${count(all)} records of calls are here one by one; where there are more than pixels, heights show shares of the time.`
    : `${count(all)} records of calls are merged into intervals of ${ns(data.timeline.bucket)} whose heights show the share of the time of each class; ${count(single)} of them are kept one by one, the longest of each process (all of over ${ns(Math.max(...cut.map((lane) => lane.shortest)))}). calls.parquet has all.`;
  const arrows = data.flights.seen > data.flights.kept ? ` Arrows: the ${count(data.flights.kept)} slowest of ${count(data.flights.seen)} messages.` : "";
  const moving = matchMedia("(pointer: coarse)").matches ? "Drag to move, two fingers zoom; drag in the strip on top to choose a part." : "Drag to move, Ctrl and wheel to zoom, double-click to zoom in, drag in the strip on top to choose a part; keys: arrows, + − 0.";
  return `${moving} ${calls}${arrows}`;
}

/** The gutter is as narrow as a small screen needs it. @param {number} width */
function setFrame(width) {
  frame.gutter = width < 560 ? 78 : width < 1000 ? 120 : width < 1700 ? 160 : 200;
  frame.right = width < 560 ? 4 : 14;
}

async function timeline() {
  await Promise.all([loadLanes(), loadFlights()]);
  const made = section("time", "Time line", "Time line", null);
  if (!lanes.length) { made.append(el("p", { class: "note" }, "No call was recorded.")); return; }
  const main = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "time line" });
  const axis = el("canvas", { class: "axis", "aria-hidden": "true" });
  const { rows, height } = layout();
  const shown = Math.min(height, TALLEST);
  const scroller = el("div", { class: "rows", style: { maxHeight: `${TALLEST}px` } }, el("div", { class: "sticky" }, main), el("div", { style: { height: `${height - shown}px` } }));
  const box = el("div", { id: "timeline" });
  const strip = overviewStrip(scroller);
  const total = [0, 1].map((way) => together(moved.map((each) => each[way])));
  const traffic = trafficBand("all processes", () => [{ name: "sent", tone: "send", amounts: total[0] }, { name: "received", tone: "receive", amounts: total[1] }], 64);
  box.append(strip.canvas, el("div", { id: "traffic" }, traffic.canvas), scroller, axis);
  const where = el("span", { class: "note", id: "where", "aria-live": "polite" });
  const button = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => el("button", { type: "button", title, "aria-label": title, onclick: act }, text);
  const arrows = el("button", { type: "button", title: "Arrows from sends to receives", "aria-pressed": "true", onclick: () => { flights.shown = !flights.shown; arrows.setAttribute("aria-pressed", String(flights.shown)); drawMain(); } }, "Arrows");
  const selection = selectionPart((sentence) => main.setAttribute("aria-label", `${many(rows.length, "process", "processes")} over time. ${sentence} Arrow keys move, plus and minus zoom, 0 shows all.`));
  const present = [true, false].flatMap((mpi) => data.timeline.classes[mpi ? 1 : 0].flatMap((name, i) => {
    const seen = lanes.some((lane) => lane.mpi === mpi && (lane.sums[i]?.at(-1) ?? 0) > 0);
    return seen ? [/** @type {[string, string]} */ ([tonesOf(mpi)[i], name])] : [];
  }));
  made.append(el("div", { class: "card" },
    el("div", { class: "bar-head" }, legend(present),
      el("div", { class: "bar-head" }, where, el("div", { class: "tools" }, data.flights.kept ? arrows : null, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("⟲", "All of the run", () => show(0, data.span))))),
    box, selection.line, el("div", { class: "tables" }, selection.table, traffic.table), el("p", { class: "note", id: "merged" }, mergedNote())));

  function drawMain() {
    const width = scroller.clientWidth;
    const pen = fit(main, width, shown);
    const top = scroller.scrollTop;
    pen.textBaseline = "alphabetic";
    const seen = rows.filter((row) => row.y - top <= shown && row.y - top >= -60);
    for (const row of seen) {
      drawNames(pen, row, top);
      row.lanes.forEach(({ lane, y }) => drawLane(pen, lane, y - top, width));
    }
    drawArrows(pen, rows, top, width);
  }
  function drawAll() {
    // of a page that is not shown (a tab of a notebook): it is drawn when it has a size
    if (scroller.clientWidth <= 0) return;
    drawMain();
    drawAxis(axis, scroller.clientWidth);
    strip.draw();
    const span = view.to - view.from;
    where.textContent = `${moment(view.from, span)} to ${moment(view.to, span)}, ${ns(span)}`;
  }
  const resize = () => { setFrame(box.clientWidth); strip.forget(); drawAll(); };
  viewers.push(lazily(drawAll));
  // before what else is drawn over time: it has the same gutter
  redraws.unshift(resize);
  scroller.addEventListener("scroll", drawMain);
  resize();
  traffic.draw();
  movable(main);
  keyed(main, { ArrowUp: () => { scroller.scrollTop -= 60; }, ArrowDown: () => { scroller.scrollTop += 60; } });
  main.addEventListener("pointermove", (event) => {
    const y = event.clientY - main.getBoundingClientRect().top + scroller.scrollTop;
    const t = timeAt(event, main);
    const hit = rows.flatMap((row) => row.lanes).find((each) => y >= each.y && y < each.y + LANE + 1);
    showTip(event, hit && t >= view.from && t <= view.to ? describe(hit.lane, t) : null);
  });
  main.addEventListener("pointerleave", (event) => showTip(event, null));
}
