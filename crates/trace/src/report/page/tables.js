// Paths of MPI messages, what failed, processes, functions, the comparison with another run.

/** @param {PathData} row */
const pathEnd = (row) => Math.max(row[6], row[8], row[9] ? row[9][0] : 0);

/**
 * A message's way as a bar.
 * @param {PathData} row
 * @param {number} longest
 */
function pathBar(row, longest) {
  const [end, first, sent, ack] = [row[6], row[7], row[8], row[9]];
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "path");
  svg.setAttribute("viewBox", "0 0 1000 14");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const part = (/** @type {number} */ a, /** @type {number} */ b, /** @type {string} */ tone, /** @type {number} */ y, /** @type {number} */ h) => {
    const rect = document.createElementNS(space, "rect");
    const set = { x: a / longest * 1000, width: Math.max(1.5, (b - a) / longest * 1000), y, height: h, fill: `var(--${tone})` };
    Object.entries(set).forEach(([key, value]) => rect.setAttribute(key, String(value)));
    svg.append(rect);
  };
  part(0, end, "mpi-send", 0, 4);
  part(0, first, "other", 5, 9);
  part(first, sent, "send", 5, 9);
  if (ack) part(sent, Math.max(sent, ack[0]), "receive", 5, 9);
  return svg;
}

function paths() {
  const p = data.paths;
  if (!p.found && !p.unfound) return;
  const note = "From the MPI call to its first send, to the end of the send that carried its last byte, to the acknowledgement; through shared memory, until the receiver has taken it out. MPI's own headers count like data, so the last byte may be off by those. A bound of 0 is exact (a segment that arrived told it); else the acknowledgement was at most that much earlier.";
  const made = section("paths", "The way of an MPI message", "Message path", p.found ? note : `None of ${many(p.unfound, "MPI message")} was found in sockets.`);
  if (!p.found) return;
  const stage = (/** @type {string} */ name, /** @type {Figures} */ figures) => tile(figures[0] ? `${ns(figures[1])} / ${ns(figures[2])}` : UNKNOWN, name, false);
  made.append(el("div", { class: "tiles" },
    stage("MPI call → first send(), median / p90", p.to_send), stage("first → last send()", p.sending), stage("last send() → acknowledged", p.to_acknowledged),
    tile(count(p.found), `messages followed, ${count(p.acknowledged)} to the acknowledgement${p.unfound ? `; ${count(p.unfound)} not found in sockets` : ""}`, false)));
  if (!p.longest.length) return;
  const longest = Math.max(1, ...p.longest.map(pathEnd));
  const names = (/** @type {PathData} */ row) => [data.processes[row[1]].name, data.processes[row[2]].name];
  const lead = (/** @type {PathData} */ row) => {
    const t = pathEnd(row);
    show(row[5] - t * 0.6, row[5] + t * 1.6);
    const [from, to] = names(row);
    const there = data.connections.findIndex((each) => each.names[0] === from && each.names[1] === to);
    const back = data.connections.findIndex((each) => each.names[1] === from && each.names[0] === to);
    if (there >= 0) chooseAndKeep(there, "there"); else if (back >= 0) chooseAndKeep(back, "back");
    goTo("time");
  };
  made.append(el("div", { class: "card" },
    legend([["mpi-send", "inside the MPI call"], ["other", "before send()"], ["send", "send()"], ["receive", "until acknowledged"]], el("span", null, `The ${count(p.longest.length)} longest; a row leads to its place in the time line.`)),
    table(p.longest, [
      { title: "Message", key: (row) => row[1] * 1e6 + row[2], cell: (row) => [names(row).join(" → "), small(`${row[0]}, tag ${row[4]}`)] },
      { title: "At", key: (row) => row[5], cell: (row) => moment(row[5], 1e6), numeric: true },
      { title: "Bytes", key: (row) => row[3], cell: (row) => bytes(row[3]), numeric: true },
      { title: "Over", key: carried, cell: carried, wide: true },
      { title: "To send()", key: (row) => row[7], cell: (row) => ns(row[7]), numeric: true },
      { title: "Sent", key: (row) => row[8], cell: (row) => ns(row[8]), numeric: true },
      { title: "MPI call returned", key: (row) => row[6], cell: (row) => ns(row[6]), numeric: true },
      { title: "Acknowledged", key: (row) => (row[9] ? row[9][0] : -1), cell: (row) => (row[9] ? [ns(row[9][0]), small(row[9][1] ? `at most ${ns(row[9][1])} earlier` : "exact")] : "not seen"), numeric: true },
      { title: "MPI call, send, acknowledged", key: pathEnd, cell: (row) => pathBar(row, longest) },
    ], { sort: 8, id: "paths-table", label: "The longest ways of MPI messages", onRow: lead }).box));
}

/** What carried a message: several lanes, with their shares. */
const carried = (/** @type {PathData} */ row) => row[10].map(([name, size]) => (row[10].length > 1 ? `${name}: ${bytes(size)}` : name)).join(", ");

function rails() {
  if (!data.rails.length) return;
  const made = section("rails", "Polyrail's rails", "Rails", "What happened to the peers and lanes of Polyrail's endpoints, as these tell it.");
  made.append(el("div", { class: "card" }, table(data.rails, [
    { title: "At", key: (row) => row.at, cell: (row) => moment(row.at, 1e6), numeric: true },
    { title: "Process", key: (row) => row.process, cell: (row) => [row.process, small(`to ${row.peer}`)] },
    { title: "What", key: (row) => row.event, cell: (row) => [row.event.replaceAll("_", " "), small(row.what)] },
    { title: "From, to", key: (row) => row.near, cell: (row) => [row.near || UNKNOWN, small(row.far)] },
    { title: "Why", key: (row) => row.why, cell: (row) => row.why, wide: true },
  ], { sort: 0, down: false, id: "rails-table", label: "What happened to peers and lanes", most: 1000 }).box));
}

function failures() {
  if (!data.refused.length && !data.unheard.length) return;
  const made = section("failures", "What failed", "What failed", "Connects that came to nothing, and datagrams of traced processes that the socket they were sent to did not receive.");
  if (data.refused.length) {
    made.append(el("div", { class: "card" }, table(data.refused, [
      { title: "Process", key: (row) => row.process, cell: (row) => row.process },
      { title: "Connect to", key: (row) => row.to, cell: (row) => row.to || UNKNOWN },
      { title: "Why", key: (row) => row.why, cell: (row) => row.why, wide: true },
      { title: "Times", key: (row) => row.times, cell: (row) => count(row.times), numeric: true },
    ], { sort: 3, id: "refused-table", label: "Connects that failed" }).box));
  }
  if (data.unheard.length) {
    made.append(el("div", { class: "card" }, table(data.unheard, [
      { title: "Receiver", key: (row) => row.process, cell: (row) => row.process },
      { title: "At", key: (row) => row.at, cell: (row) => row.at || UNKNOWN },
      { title: "Datagrams sent to it", key: (row) => row.sent, cell: (row) => count(row.sent), numeric: true },
      { title: "Received", key: (row) => row.received, cell: (row) => count(row.received), numeric: true },
      { title: "Lost", key: (row) => row.sent - row.received, cell: (row) => [count(row.sent - row.received), small(percent(1 - row.received / row.sent))], numeric: true },
    ], { sort: 4, id: "unheard-table", label: "Datagrams that were not received" }).box));
  }
}

function processes() {
  const made = section("processes", "Processes", "Processes", "Time inside calls; what is left is computing, or calls that are not recorded. Socket calls of an MPI library lie inside its MPI calls.");
  const life = (/** @type {ProcessData} */ row) => Math.max(1, row.span[1] - row.span[0]);
  const bar = (/** @type {ProcessData} */ row, /** @type {number[]} */ list, /** @type {boolean} */ mpi) => {
    const all = Math.max(life(row), sum(list));
    const names = data.timeline.classes[mpi ? 1 : 0];
    return shareBar(list.map((time, i) => [time / all, tonesOf(mpi)[i]]), names.map((name, i) => `${name} ${percent((list[i] ?? 0) / all)}`).join(", "));
  };
  // what of its waiting ended with nothing
  const sockets = (/** @type {ProcessData} */ row) => { const idle = Math.min(row.idle, row.sockets[2]); return [row.sockets[0], row.sockets[1], row.sockets[2] - idle, row.sockets[3], idle]; };
  const command = (/** @type {string} */ text) => (text.length > 48 ? el("span", { title: text }, shortened(text, 48)) : text);
  const mpi = data.totals.mpi > 0;
  made.append(el("div", { class: "card" }, table(data.processes, [
    { title: "Process", key: (row) => (row.rank === null ? "~" : "") + row.name, cell: (row) => [row.name, small(`${data.hosts[row.host]?.name ?? "?"}, ${row.pid}, exit ${row.status ?? "unknown"}`)] },
    { title: "Command", key: (row) => row.command, cell: (row) => command(row.command), wide: true },
    ...(mpi ? /** @type {Column<ProcessData>[]} */ ([
      { title: "In MPI calls", key: (row) => sum(row.mpi) / life(row), cell: (row) => [bar(row, row.mpi, true)] },
      { title: "of its time", key: (row) => sum(row.mpi), cell: (row) => percent(Math.min(1, sum(row.mpi) / life(row))), numeric: true },
    ]) : []),
    { title: "In socket calls", key: (row) => sum(row.sockets) / life(row), cell: (row) => [bar(row, sockets(row), false)] },
    { title: "of its time", key: (row) => sum(row.sockets), cell: (row) => percent(Math.min(1, sum(row.sockets) / life(row))), numeric: true },
    { title: "Waited for others", key: (row) => row.waited, cell: (row) => ns(row.waited), numeric: true },
    { title: "Waited for nothing seen", key: (row) => row.idle, cell: (row) => ns(row.idle), numeric: true },
    { title: "Sent", key: (row) => row.bytes[0], cell: (row) => bytes(row.bytes[0]), numeric: true },
    { title: "Received", key: (row) => row.bytes[1], cell: (row) => bytes(row.bytes[1]), numeric: true },
    { title: "Messages", key: (row) => row.messages, cell: (row) => count(row.messages), numeric: true },
    { title: "Calls", key: (row) => row.calls, cell: (row) => count(row.calls), numeric: true },
  ], { sort: 0, down: false, id: "processes-table", label: "Processes", most: 2000 }).box));
}

function calls() {
  if (!data.calls.length) return;
  const made = section("calls", "Functions", "Functions", null);
  made.append(el("div", { class: "card" }, table(data.calls, [
    { title: "Function", key: (row) => row.name, cell: (row) => row.name },
    { title: "Calls", key: (row) => row.calls, cell: (row) => count(row.calls), numeric: true },
    { title: "Time inside", key: (row) => row.inside, cell: (row) => ns(row.inside), numeric: true },
    { title: "Mean", key: (row) => row.inside / row.calls, cell: (row) => ns(row.inside / row.calls), numeric: true },
    { title: "Longest", key: (row) => row.longest, cell: (row) => ns(row.longest), numeric: true },
    { title: "Bytes", key: (row) => row.bytes, cell: (row) => (row.bytes ? bytes(row.bytes) : UNKNOWN), numeric: true },
    { title: "Errors", key: (row) => row.errors, cell: (row) => (row.errors ? count(row.errors) : UNKNOWN), numeric: true },
  ], { sort: 2, id: "calls-table", label: "Functions" }).box));
}

function against() {
  if (!data.against) return;
  const made = section("against", "Against the other run", "Against", "Figures of this run beside those of the run it was compared with; ratio: this one's to the other's.");
  made.append(el("div", { class: "card" }, table(data.against.map((row, at) => ({ ...row, at })), [
    { title: "Figure", key: (row) => row.at, cell: (row) => row.name },
    { title: "This run", key: () => 0, cell: (row) => row.ours, numeric: true },
    { title: "Against", key: () => 0, cell: (row) => row.theirs, numeric: true },
    { title: "Ratio", key: (row) => row.ratio, cell: (row) => (row.ratio === null ? UNKNOWN : row.ratio < 0.1 ? String(Number(row.ratio.toPrecision(2))) : row.ratio.toFixed(2)), numeric: true },
  ], { sort: 0, down: false, id: "against-table", label: "Comparison with the other run" }).box));
}

function footer() {
  const host = (/** @type {HostData} */ each) => `${each.name} (${[each.kernel, many(each.processors, "processor"), each.clock_error === null ? "clock not aligned" : each.clock_error ? `clock within ${ns(each.clock_error)}` : "reference clock", each.kernel_events ? "with kernel events" : "without kernel events"].join(", ")})`;
  const t = data.totals;
  must("page").append(el("footer", null,
    el("p", null, data.hosts.length ? `Hosts: ${data.hosts.map(host).join("; ")}.` : ""),
    data.notes.map((note) => el("p", { class: "note" }, note)),
    el("p", null, `${count(t.records)} records of ${count(t.calls)} socket calls, ${t.mpi ? `${count(t.mpi)} MPI calls, ` : ""}${count(t.samples)} samples of TCP connections, ${count(t.kernel)} kernel events. Beside this page: the same as Parquet files for notebooks, and trace.perfetto-trace for ui.perfetto.dev.`),
    el("p", null, "Charts: Apache ECharts (Apache License 2.0).")));
}
