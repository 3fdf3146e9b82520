// Paths of MPI messages, connections, processes, calls.

/** A table whose columns sort it; `columns`: title, value to sort by, cell, and whether it is a number. */
function table(rows, columns, { sort = 0, down = true, onRow, id, most = 400 } = {}) {
  let by = sort, descending = down;
  const body = el("tbody", {});
  const heads = columns.map(([title, , , numeric], i) => el("th", { class: numeric ? "num" : "", scope: "col" },
    el("button", { type: "button", onclick: () => { if (by === i) descending = !descending; else { by = i; descending = Boolean(numeric); } fill(); } }, title)));
  function fill() {
    const key = columns[by][1];
    const sorted = rows.slice().sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : (x ?? -1) - (y ?? -1);
      return descending ? -order : order;
    });
    heads.forEach((head, i) => {
      head.setAttribute("aria-sort", i === by ? (descending ? "descending" : "ascending") : "none");
      head.firstChild.textContent = columns[i][0] + (i === by ? (descending ? " ↓" : " ↑") : "");
    });
    body.replaceChildren(...sorted.slice(0, most).map((row) => el("tr", { class: onRow ? "click" : "", onclick: onRow ? (event) => {
      body.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
      event.currentTarget.classList.add("chosen");
      onRow(row);
    } : null }, columns.map(([, , cell, numeric]) => el("td", { class: numeric ? "num" : numeric === null ? "names" : "" }, cell(row))))));
  }
  fill();
  return el("div", { class: "table" }, el("table", { id }, el("thead", {}, el("tr", {}, heads)), body));
}
const small = (text) => el("small", {}, text);
const shareBar = (parts, label) => el("div", { class: "share", title: label, role: "img", "aria-label": label }, parts.map(([share, tone]) => (share > 0 ? el("i", { style: { width: `${share * 100}%`, background: `var(--${tone})` } }) : null)));

function paths() {
  const p = data.paths;
  if (!p.found && !p.unfound) return;
  const note = "From the MPI call to its first send(), to the end of the send that carried its last byte, to the acknowledgement. MPI's own headers count like data, so the last byte may be off by those. A bound of 0 is exact (a segment that arrived told it); else the acknowledgement was at most that much earlier.";
  const made = section("paths", "The way of an MPI message", "Message path", note);
  const stage = (name, figures) => el("div", { class: "tile" }, el("div", { class: "value" }, figures[0] ? `${ns(figures[1])} / ${ns(figures[2])}` : "–"), el("div", { class: "label" }, name));
  made.append(el("div", { class: "tiles" },
    stage("MPI call → first send(), median / p90", p.to_send), stage("first → last send()", p.sending), stage("last send() → acknowledged", p.to_acknowledged),
    el("div", { class: "tile" }, el("div", { class: "value" }, count(p.found)), el("div", { class: "label" }, `messages followed, ${count(p.acknowledged)} to the acknowledgement${p.unfound ? `; ${count(p.unfound)} not found in sockets` : ""}`))));
  if (!p.longest.length) return;
  const total = (row) => Math.max(row[6], row[8], row[9] ? row[9][0] : 0);
  const longest = Math.max(1, ...p.longest.map(total));
  const bar = (row) => {
    const [end, first, sent, ack] = [row[6], row[7], row[8], row[9]];
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", "path");
    svg.setAttribute("viewBox", "0 0 1000 14");
    svg.setAttribute("preserveAspectRatio", "none");
    const part = (a, b, tone, y, h) => {
      const rect = document.createElementNS(space, "rect");
      const set = { x: a / longest * 1000, width: Math.max(1.5, (b - a) / longest * 1000), y, height: h, fill: `var(--${tone})` };
      Object.entries(set).forEach(([key, value]) => rect.setAttribute(key, value));
      svg.append(rect);
    };
    part(0, end, "mpi-send", 0, 4);
    part(0, first, "other", 5, 9);
    part(first, sent, "send", 5, 9);
    if (ack) part(sent, Math.max(sent, ack[0]), "receive", 5, 9);
    return svg;
  };
  made.append(el("div", { class: "card" },
    el("div", { class: "legend-row", style: { marginBottom: "4px" } }, [["mpi-send", "inside the MPI call"], ["other", "before send()"], ["send", "send()"], ["receive", "until acknowledged"]].map(([tone, name]) => el("span", {}, el("i", { class: "swatch", style: { background: `var(--${tone})` } }), name)), el("span", {}, `The ${count(p.longest.length)} longest; a row leads to its place in the time line.`)),
    table(p.longest, [
      ["Message", (row) => row[1] * 1e6 + row[2], (row) => [`${data.processes[row[1]].name} → ${data.processes[row[2]].name}`, small(`${row[0]}, tag ${row[4]}`)]],
      ["At", (row) => row[5], (row) => moment(row[5], 1e6), true],
      ["Bytes", (row) => row[3], (row) => bytes(row[3]), true],
      ["To send()", (row) => row[7], (row) => ns(row[7]), true],
      ["Sent", (row) => row[8], (row) => ns(row[8]), true],
      ["MPI call returned", (row) => row[6], (row) => ns(row[6]), true],
      ["Acknowledged", (row) => (row[9] ? row[9][0] : -1), (row) => (row[9] ? [ns(row[9][0]), small(row[9][1] ? `at most ${ns(row[9][1])} earlier` : "exact")] : "not seen"), true],
      ["MPI call, send(), acknowledged", total, bar],
    ], { sort: 7, id: "paths-table", onRow: (row) => { const t = total(row); show(row[5] - t * 0.6, row[5] + t * 1.6); const way = directions.findIndex((each) => each.name === `${data.processes[row[1]].name} → ${data.processes[row[2]].name}`); if (way >= 0) chooseDirection(way); $("time").scrollIntoView(); } })));
}

function connections() {
  const [left, leftBytes] = data.connections_left_out;
  const made = section("connections", "Connections", "Connections", `Both directions of each: there above, back below. A row leads to its window over time.${left ? ` ${many(left, "connection")} with fewer bytes (${bytes(leftBytes)} together) are in sockets.parquet only.` : ""}`);
  if (!data.connections.length) { made.append(el("div", { class: "card empty" }, "No connection carried bytes.")); return; }
  const two = (row, get) => [get(row.there), el("br"), get(row.back)];
  const sum = (row, get) => (get(row.there) || 0) + (get(row.back) || 0);
  const tones = ["fill", "send", "wait", "mpi-collective"];
  const names = ["nothing to send", "network (window, pacing, path)", "receiver's window", "send buffer"];
  const limits = (one) => {
    if (!one.limits) return el("div", { class: "soft" }, "–");
    const all = Math.max(1, one.limits.reduce((x, y) => x + y, 0));
    const text = one.limits.map((time, i) => `${names[i]} ${percent(time / all)}`).join(", ") + (one.full === null ? "" : `; window at least nine tenths full in ${percent(one.full)} of the observations`);
    return el("div", { style: { padding: "4px 0" } }, shareBar(one.limits.map((time, i) => [time / all, tones[i]]), text));
  };
  const mean = (row, one) => (row.span[1] > row.span[0] ? one.bytes / ((row.span[1] - row.span[0]) / 1e9) : null);
  made.append(el("div", { class: "card" },
    el("div", { class: "legend-row" }, "Limited by: ", tones.map((tone, i) => el("span", {}, el("i", { class: "swatch", style: { background: `var(--${tone})`, outline: i ? "" : "1px solid var(--line)" } }), names[i]))),
    table(data.connections, [
      ["Connection", (row) => row.names.join(), (row) => [`${row.names[0]} – ${row.names[1]}`, small(`${row.kind} ${row.addresses.filter(Boolean).join(" – ")}`)], null],
      ["Class", (row) => [row.classes.frequency, row.classes.size, row.classes.synchrony].join(), (row) => [`${row.classes.frequency || "–"}, ${row.classes.size || "–"}`, small(`synchrony ${row.classes.synchrony || "–"}`)]],
      ["Gap p50 / p90", (row) => (row.classes.gap || [-1])[0], (row) => (row.classes.gap ? [ns(row.classes.gap[0]), small(ns(row.classes.gap[1]))] : "–"), true],
      ["Size p50 / p90", (row) => (row.classes.bytes || [-1])[0], (row) => (row.classes.bytes ? [bytes(row.classes.bytes[0]), small(bytes(row.classes.bytes[1]))] : "–"), true],
      ["Bytes", (row) => sum(row, (one) => one.bytes), (row) => two(row, (one) => bytes(one.bytes)), true],
      ["Messages", (row) => sum(row, (one) => one.messages), (row) => two(row, (one) => count(one.messages)), true],
      ["Mean rate", (row) => mean(row, row.there), (row) => two(row, (one) => rate(mean(row, one))), true],
      ["While busy", (row) => row.there.rate, (row) => two(row, (one) => rate(one.rate)), true],
      ["Sent again", (row) => sum(row, (one) => one.retransmissions), (row) => two(row, (one) => (one.retransmissions ? el("span", { class: "bad" }, `${count(one.retransmissions)}${one.loss === null ? "" : ` (${percent(one.loss)})`}`) : "0")), true],
      ["RTO", (row) => sum(row, (one) => one.timeouts), (row) => two(row, (one) => (one.timeouts ? el("span", { class: "bad" }, count(one.timeouts)) : "0")), true],
      ["RTT min / mean", (row) => row.min_rtt, (row) => [us(row.min_rtt), small(us(row.there.mean_rtt ?? row.back.mean_rtt))], true],
      ["Control", (row) => row.there.congestion, (row) => row.there.congestion || row.back.congestion || "–"],
      ["Limited by", (row) => (row.there.limits ? row.there.limits[1] : -1), (row) => [limits(row.there), limits(row.back)]],
    ], { sort: 4, id: "connections-table", onRow: (row) => { const way = directions.findIndex((each) => each.connection === row); if (way >= 0) chooseDirection(way); } })));
}

function processes() {
  const made = section("processes", "Processes", "Processes", "Time inside calls; what is left is computing, or calls that are not recorded. Socket calls of an MPI library lie inside its MPI calls.");
  const life = (row) => Math.max(1, row.span[1] - row.span[0]);
  const sum = (list) => list.reduce((x, y) => x + y, 0);
  const bar = (row, list, tones, names) => {
    const all = Math.max(life(row), sum(list));
    return shareBar(list.map((time, i) => [time / all, tones[i]]), names.map((name, i) => `${name} ${percent(list[i] / all)}`).join(", "));
  };
  made.append(el("div", { class: "card" }, table(data.processes, [
    ["Process", (row) => (row.rank === null ? "~" : "") + row.name, (row) => [row.name, small(`${(data.hosts[row.host] || { name: "?" }).name}, ${row.pid}, exit ${row.status ?? "unknown"}`)]],
    ["Command", (row) => row.command, (row) => (row.command.length > 44 ? el("span", { title: row.command }, `…${row.command.slice(-43)}`) : row.command), null],
    ...(data.totals.mpi ? [["In MPI calls", (row) => sum(row.mpi) / life(row), (row) => [bar(row, row.mpi, MPI_COLORS, data.timeline.classes[1])]], ["", (row) => sum(row.mpi), (row) => percent(Math.min(1, sum(row.mpi) / life(row))), true]] : []),
    ["In socket calls", (row) => sum(row.sockets) / life(row), (row) => [bar(row, row.sockets, SOCKET_COLORS, data.timeline.classes[0])]],
    ["", (row) => sum(row.sockets), (row) => percent(Math.min(1, sum(row.sockets) / life(row))), true],
    ["Waited for others", (row) => row.waited, (row) => ns(row.waited), true],
    ["Waited for nothing seen", (row) => row.idle, (row) => ns(row.idle), true],
    ["Sent", (row) => row.bytes[0], (row) => bytes(row.bytes[0]), true],
    ["Received", (row) => row.bytes[1], (row) => bytes(row.bytes[1]), true],
    ["Messages", (row) => row.messages, (row) => count(row.messages), true],
    ["Calls", (row) => row.calls, (row) => count(row.calls), true],
  ], { sort: 0, down: false, id: "processes-table", most: 2000 })));
}

function calls() {
  if (!data.calls.length) return;
  const made = section("calls", "Functions", "Functions", null);
  made.append(el("div", { class: "card" }, table(data.calls, [
    ["Function", (row) => row.name, (row) => row.name],
    ["Calls", (row) => row.calls, (row) => count(row.calls), true],
    ["Time inside", (row) => row.inside, (row) => ns(row.inside), true],
    ["Mean", (row) => row.inside / row.calls, (row) => ns(row.inside / row.calls), true],
    ["Longest", (row) => row.longest, (row) => ns(row.longest), true],
    ["Bytes", (row) => row.bytes, (row) => (row.bytes ? bytes(row.bytes) : "–"), true],
    ["Errors", (row) => row.errors, (row) => (row.errors ? count(row.errors) : "–"), true],
  ], { sort: 2, id: "calls-table" })));
}

function footer() {
  const host = (each) => `${each.name} (${[each.kernel, many(each.processors, "processor"), each.clock_error === null ? "clock not aligned" : each.clock_error ? `clock within ${ns(each.clock_error)}` : "reference clock", each.kernel_events ? "with kernel events" : "without kernel events"].join(", ")})`;
  $("page").append(el("footer", {},
    el("p", {}, data.hosts.length ? `Hosts: ${data.hosts.map(host).join("; ")}.` : ""),
    el("p", {}, `${count(data.totals.records)} records of ${count(data.totals.calls)} socket calls, ${count(data.totals.mpi)} MPI calls, ${count(data.totals.samples)} samples of TCP connections, ${count(data.totals.kernel)} kernel events. Beside this page: the same as Parquet files for notebooks, and trace.perfetto-trace for ui.perfetto.dev.`),
    el("p", {}, "Drawn with Apache ECharts (Apache License 2.0).")));
}
