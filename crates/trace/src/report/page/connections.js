// The connections: found by words, sorted by any column, and chosen from.
const LIMITS = ["nothing to send", "network (window, pacing, path)", "receiver's window", "send buffer"];
const LIMIT_TONES = ["fill", "send", "wait", "mpi-collective"];

/** Numbers of the connections in the order of the table. */
let connectionOrder = () => data.connections.map((_, i) => i);

/** @param {DirectionData} one */
function limitBar(one) {
  if (!one.limits) return el("div", { class: "soft" }, UNKNOWN);
  const all = Math.max(1, sum(one.limits));
  const text = one.limits.map((time, i) => `${LIMITS[i]} ${percent(time / all)}`).join(", ") + (one.full === null ? "" : `; window at least nine tenths full in ${percent(one.full)} of the observations`);
  return el("div", { class: "limit" }, shareBar(one.limits.map((time, i) => [time / all, LIMIT_TONES[i]]), text));
}
/** @param {DirectionData} one */
function sentAgain(one) {
  if (!one.retransmissions) return "0";
  const share = one.loss === null ? "" : ` (${percent(one.loss)})`;
  // what was sent again for nothing has no colour; how much that was has no room in the table, and stands with the chosen connection
  return el("span", { class: one.retransmissions > one.spurious ? "bad" : null, title: one.spurious ? `${count(one.spurious)} of them for nothing` : null }, `${count(one.retransmissions)}${share}`);
}

/** @returns {Column<ConnectionData>[]} */
function connectionColumns() {
  const two = (/** @type {ConnectionData} */ row, /** @type {(one: DirectionData) => Child} */ get) => [get(row.there), el("br", null), get(row.back)];
  const both = (/** @type {ConnectionData} */ row, /** @type {(one: DirectionData) => number | null} */ get) => (get(row.there) || 0) + (get(row.back) || 0);
  const mean = (/** @type {ConnectionData} */ row, /** @type {DirectionData} */ one) => (row.span[1] > row.span[0] ? one.bytes / ((row.span[1] - row.span[0]) / 1e9) : null);
  const where = (/** @type {ConnectionData} */ row) => [row.kind, row.addresses.filter(Boolean).join(" – "), data.hosts.length > 1 ? `${row.hosts[0] || "?"} – ${row.hosts[1] || "?"}` : ""].filter(Boolean).join(" · ");
  const timed = data.connections.some((row) => row.there.limits || row.back.limits);
  const tcp = data.connections.some((row) => row.kind === "TCP");
  return [
    { title: "Connection", key: (row) => endsOf(row).join(), cell: (row) => [endsOf(row).join(" – "), small(where(row))], wide: true },
    { title: "Bytes", key: (row) => both(row, (one) => one.bytes), cell: (row) => two(row, (one) => bytes(one.bytes)), numeric: true },
    { title: "Messages", key: (row) => both(row, (one) => one.messages), cell: (row) => two(row, (one) => count(one.messages)), numeric: true },
    { title: "Mean rate", key: (row) => both(row, (one) => mean(row, one)), cell: (row) => two(row, (one) => rate(mean(row, one))), numeric: true },
    { title: "Begins", key: (row) => row.span[0], cell: (row) => [moment(row.span[0], data.span), small(`for ${ns(row.span[1] - row.span[0])}`)], numeric: true },
    { title: "Size p50 / p90", key: (row) => row.classes.bytes?.[0], cell: (row) => (row.classes.bytes ? [bytes(row.classes.bytes[0]), small(bytes(row.classes.bytes[1]))] : UNKNOWN), numeric: true },
    { title: "Gap p50 / p90", key: (row) => row.classes.gap?.[0], cell: (row) => (row.classes.gap ? [ns(row.classes.gap[0]), small(ns(row.classes.gap[1]))] : UNKNOWN), numeric: true },
    ...(data.mpi_classes ? [/** @type {Column<ConnectionData>} */ ({ title: "Class", key: (row) => [row.classes.frequency, row.classes.size, row.classes.synchrony].join(), cell: (row) => [`${row.classes.frequency || UNKNOWN}, ${row.classes.size || UNKNOWN}`, small(`synchrony ${row.classes.synchrony || UNKNOWN}`)] })] : []),
    ...(tcp ? /** @type {Column<ConnectionData>[]} */ ([
      { title: "Sent again", key: (row) => both(row, (one) => one.retransmissions), cell: (row) => two(row, sentAgain), numeric: true },
      { title: "Timeouts", key: (row) => both(row, (one) => one.timeouts), cell: (row) => two(row, (one) => (one.timeouts ? el("span", { class: "bad" }, count(one.timeouts)) : "0")), numeric: true },
      { title: "RTT min / mean", key: (row) => row.min_rtt, cell: (row) => [us(row.min_rtt), small(us(row.there.mean_rtt ?? row.back.mean_rtt))], numeric: true },
      { title: "Control", key: (row) => row.there.congestion || row.back.congestion, cell: (row) => row.there.congestion || row.back.congestion || UNKNOWN },
    ]) : []),
    ...(timed ? /** @type {Column<ConnectionData>[]} */ ([
      { title: "While busy", key: (row) => Math.max(row.there.rate ?? -1, row.back.rate ?? -1), cell: (row) => two(row, (one) => rate(one.rate)), numeric: true },
      { title: "Limited by", key: (row) => row.there.limits?.[1], cell: (row) => [limitBar(row.there), limitBar(row.back)] },
    ]) : []),
  ];
}

function connections() {
  const [left, leftBytes] = data.connections_left_out;
  const more = left ? ` ${many(left, "connection")} with fewer bytes (${bytes(leftBytes)} together) are in sockets.parquet only.` : "";
  const made = section("connections", "Connections", "Connections", data.connections.length ? `Both directions of each: there above, back below. A row leads to its bytes and windows over time, above.${more}` : "No connection carried bytes.");
  if (!data.connections.length) return;
  const numbers = new Map(data.connections.map((row, i) => [row, i]));
  const number = (/** @type {ConnectionData} */ row) => numbers.get(row) ?? -1;
  const find = el("input", { type: "search", id: "find", placeholder: "name, address, port, TCP, host…", autocomplete: "off", spellcheck: "false" });
  const list = table(data.connections, connectionColumns(), {
    id: "connections-table", label: "Connections", sort: 1, most: 400,
    onRow: (row) => { chooseAndKeep(number(row)); must("chosen").scrollIntoView({ block: "nearest" }); },
    isChosen: (row) => number(row) === chosen.index,
    text: (row) => [row.kind, ...row.names, ...row.addresses, ...row.hosts, ...endsOf(row), row.there.congestion].join(" "),
    onSort: (by, down) => keep({ sort: by === 1 && down ? null : `${by}${down ? "d" : "u"}` }),
  });
  const restore = () => {
    find.value = kept.get("find") ?? "";
    list.search(find.value);
    const sorted = /^(\d+)([du])$/.exec(kept.get("sort") ?? "1d");
    if (sorted) list.sortBy(Number(sorted[1]), sorted[2] === "d");
  };
  find.addEventListener("input", () => { list.search(find.value); keep({ find: find.value.trim() || null }); });
  connectionOrder = () => { const order = list.order().map(number); return order.length ? order : [...numbers.values()]; };
  choosers.push(list.mark);
  returns.push(restore);
  restore();
  const limits = data.connections.some((row) => row.there.limits || row.back.limits) ? el("div", { class: "legend-row" }, "Limited by: ", LIMIT_TONES.map((tone, i) => el("span", null, swatch(tone), LIMITS[i]))) : null;
  made.append(el("div", { class: "card" }, el("div", { class: "bar-head" }, el("label", { class: "find" }, "Find ", find), limits), list.box));
}
