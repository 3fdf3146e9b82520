// One connection over time: its bytes each way, and what TCP did to it.

/** @typedef {"there" | "back"} Way */
/** @type {Way[]} */
const WAYS = ["there", "back"];
/** @param {string} address */
const portOf = (address) => (address.includes(":") ? address.slice(address.lastIndexOf(":") + 1) : "");
/** @param {ConnectionData} connection */
const endsOf = (connection) => [0, 1].map((end) => {
  const port = portOf(connection.addresses[end]);
  return port && !connection.names[end].endsWith(`port ${port}`) ? `${connection.names[end]}:${port}` : connection.names[end];
});
/**
 * @param {ConnectionData} connection
 * @param {Way} way
 */
function directionName(connection, way) {
  const [a, b] = endsOf(connection);
  return way === "there" ? `${a} → ${b}` : `${b} → ${a}`;
}

/** @type {{ index: number, way: Way, amounts: Amounts[], windows: Windows | null }} */
const chosen = { index: -1, way: "there", amounts: [], windows: null };
/** @type {(() => void)[]} */
const choosers = [];

/** The connection to begin with: one that lost something, or with most bytes. */
function mostTelling() {
  const worth = (/** @type {ConnectionData} */ c) => sum(WAYS.map((way) => c[way].retransmissions + c[way].restarts.length));
  let best = 0;
  data.connections.forEach((connection, i) => { if (worth(connection) > worth(data.connections[best])) best = i; });
  return best;
}
/** The direction to begin with: that of which something is known, or with most bytes. @param {ConnectionData} connection @returns {Way} */
function tellingWay(connection) {
  const worth = (/** @type {DirectionData} */ one) => [one.series ? 1 : 0, one.retransmissions + one.restarts.length, one.bytes];
  const [a, b] = [worth(connection.there), worth(connection.back)];
  const at = a.findIndex((value, i) => value !== b[i]);
  return at >= 0 && b[at] > a[at] ? "back" : "there";
}

/**
 * @param {number} index
 * @param {Way | null} [way]
 */
async function choose(index, way) {
  const connection = data.connections[index];
  if (!connection) return;
  chosen.index = index;
  chosen.way = way ?? tellingWay(connection);
  const amountsOf = await Promise.all(WAYS.map((each) => amounts(connection[each].moved)));
  const packed = connection[chosen.way].series;
  const windows = packed ? await loadWindows(packed) : null;
  // another one was chosen meanwhile
  if (chosen.index !== index) return;
  chosen.amounts = amountsOf;
  chosen.windows = windows;
  choosers.forEach((each) => each());
}
/**
 * Chooses, and keeps it in the address.
 * @param {number} index
 * @param {Way | null} [way]
 */
async function chooseAndKeep(index, way) {
  await choose(index, way);
  keep({ connection: index, way: chosen.way });
}
function restoreConnection() {
  const way = kept.get("way");
  return choose(keptNumber("connection") ?? mostTelling(), way === "there" || way === "back" ? way : null);
}

/** @param {ConnectionData} connection */
function connectionFacts(connection) {
  const one = connection[chosen.way];
  const s = one.series;
  return [
    `${connection.kind} ${connection.addresses.filter(Boolean).join(" – ")}`,
    data.hosts.length > 1 && connection.hosts.some(Boolean) ? connection.hosts.map((host) => host || "?").join(" – ") : null,
    one.congestion || null, one.mss ? `segments of ${bytes(one.mss)}` : null,
    connection.min_rtt ? `round trip at least ${us(connection.min_rtt)}, mean ${us(one.mean_rtt)}` : null,
    s ? `${many(one.retransmissions, "segment")} sent again${one.spurious ? ` (${count(one.spurious)} for nothing)` : ""}, ${many(one.timeouts, "timeout")}` : null,
    one.restarts.length ? `window collapsed after idle ${many(one.collapses, "time")}` : null,
    s ? `from ${many(s.seen[0], "sample")} and ${many(s.seen[1], "segment that arrived", "segments that arrived")}${s.joined > 1 ? `; up to ${s.joined} of them in one point, drawn as lowest and highest` : ""}` : null,
  ].filter(Boolean).join(" · ");
}

async function connectionPart() {
  if (!data.connections.length) return;
  const title = el("h3", { id: "chosen-title", tabindex: "-1" });
  const facts = el("p", { class: "note" });
  const line = el("p", { class: "in-view" });
  const direction = el("div", null);
  const streams = () => WAYS.flatMap((way, i) => (chosen.amounts[i]?.upTo.length > 1 ? [{ name: directionName(data.connections[chosen.index], way), tone: way === "there" ? "send" : "receive", amounts: chosen.amounts[i] }] : []));
  const band = trafficBand("the chosen connection", streams, 72);
  const tones = el("div", null);
  const step = (/** @type {number} */ by) => { const order = connectionOrder(); const at = order.indexOf(chosen.index); chooseAndKeep(order[(at + by + order.length) % order.length]); };
  const window_ = tcpChart();
  must("time").append(el("div", { class: "card", id: "chosen" },
    el("div", { class: "bar-head" }, title,
      el("div", { class: "tools" },
        el("button", { type: "button", "aria-label": "Previous connection of the table", title: "Previous connection of the table", onclick: () => step(-1) }, "‹"),
        el("button", { type: "button", "aria-label": "Next connection of the table", title: "Next connection of the table", onclick: () => step(1) }, "›"),
        el("button", { type: "button", onclick: () => { goTo("connections"); document.getElementById("find")?.focus({ preventScroll: true }); } }, "Find another…"))),
    facts, tones, el("div", { id: "chosen-traffic" }, band.canvas), line, band.table, direction, window_.box));
  const inView = () => {
    const list = WAYS.map((way, i) => {
      const within = chosen.amounts[i]?.within(view.from, view.to) ?? 0;
      return `${directionName(data.connections[chosen.index], way)} ${bytes(Math.round(within))} (${speed(within / Math.max(1, view.to - view.from) * 1e9)})`;
    });
    const marks = window_.inView();
    line.textContent = `In view: ${list.join("; ")}${marks ? `; ${marks}` : ""}.`;
  };
  choosers.push(() => {
    const connection = data.connections[chosen.index];
    title.textContent = endsOf(connection).join(" – ");
    facts.textContent = connectionFacts(connection);
    tones.replaceChildren(legend(streams().map((stream) => [stream.tone, `bytes/s ${stream.name}`])));
    const known = WAYS.filter((way) => connection[way].series);
    const pressed = `${chosen.index} ${chosen.way}`;
    // who pressed one of these buttons stays on it
    const same = direction.dataset.of === pressed || (direction.dataset.of?.startsWith(`${chosen.index} `) && direction.contains(document.activeElement));
    direction.dataset.of = pressed;
    if (!same) direction.replaceChildren(...(known.length > 1 ? [el("div", { class: "ways" }, "What TCP did to ", choice("Direction", known.map((way) => [way, directionName(connection, way)]), chosen.way, (way) => chooseAndKeep(chosen.index, way)))] : []));
    band.draw();
    window_.refresh();
    inView();
    document.documentElement.dataset.tcp = String(connection[chosen.way].series?.points ?? 0);
  });
  viewers.push(lazily(inView));
  returns.push(restoreConnection);
  await restoreConnection();
}
