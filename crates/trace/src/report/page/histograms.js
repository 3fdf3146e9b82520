// Sizes of messages and gaps between them.

/**
 * @typedef {object} HistogramState
 * @property {number[]} bins
 * @property {Figures} figures
 * @property {(v: number) => string} show
 * @property {number[]} bounds
 * @property {string[]} names
 * @property {number[]} decades
 * @property {string} what
 */
/**
 * @param {HTMLElement} box
 * @param {string} label
 * @param {() => HistogramState} state
 */
function histogram(box, label, state) {
  return chart(box, label, () => {
    const { bins, figures, show: shown, bounds, names, decades, what } = state();
    const first = Math.max(0, bins.findIndex((n) => n > 0) - 1);
    const low = bounds.length ? Math.max(0, Math.min(first, Math.floor(Math.log2(bounds[0])) - 2)) : first;
    const high = bounds.length ? Math.max(bins.length, Math.ceil(Math.log2(bounds[1])) + 3) : bins.length + 1;
    const rows = bins.map((n, digits) => [digits - 1, digits, n]).filter((row) => row[2] > 0);
    const line = (/** @type {number} */ value, /** @type {string} */ name, /** @type {boolean} */ strong) => ({ xAxis: Math.log2(Math.max(value, 1)), label: { formatter: name, position: "end", color: color("ink"), fontSize: 11 }, lineStyle: { color: color(strong ? "ink" : "soft"), type: strong ? "solid" : [2, 3], width: strong ? 1.5 : 1 } });
    const ticks = decades.map((value) => Math.log2(value)).filter((x) => x >= low && x <= high);
    const edges = bounds.length ? [low, ...bounds.map(Math.log2), high] : [];
    return {
      grid: { left: 56, right: 14, top: 44, bottom: 38 },
      xAxis: { type: "value", min: low, max: high, axisLabel: { customValues: ticks, formatter: (/** @type {number} */ x) => shown(Math.round(2 ** x)), color: color("soft"), fontSize: 11, hideOverlap: true }, axisTick: { customValues: ticks }, splitLine: { show: false }, axisLine: { lineStyle: { color: color("line") } }, name: what, nameLocation: "middle", nameGap: 24, nameTextStyle: { color: color("soft"), fontSize: 12 } },
      yAxis: { type: "value", axisLabel: { formatter: brief, color: color("soft"), fontSize: 11 }, splitLine: { lineStyle: { color: color("line") } }, splitNumber: 4 },
      tooltip: { ...tipStyle(), trigger: "item", formatter: (/** @type {any} */ item) => (item.data && item.data.length === 3 ? tipOf(binName(item.data, shown), [`${count(item.data[2])}, ${percent(item.data[2] / Math.max(figures[0], 1))} of all`]) : "") },
      series: [{
        type: "custom", data: rows, clip: true,
        renderItem: (/** @type {any} */ params, /** @type {any} */ api) => {
          const a = api.coord([Math.max(api.value(0), low), api.value(2)]);
          const b = api.coord([api.value(1), 0]);
          return { type: "rect", shape: { x: a[0] + 1, y: a[1], width: Math.max(1, b[0] - a[0] - 2), height: b[1] - a[1], r: [2, 2, 0, 0] }, style: { fill: color("send") }, emphasis: { style: { fill: color("mpi-send") } } };
        },
        encode: { x: [0, 1], y: 2 },
        markLine: { symbol: "none", silent: true, data: [...bounds.map((bound) => line(bound, "", false)), ...(figures[1] === null ? [] : [line(figures[1], `median ${shown(figures[1])}`, true)])] },
      }],
      title: names.map((name, i) => ({ text: name, textAlign: "center", left: `${4 + 94 * ((edges[i] + edges[i + 1]) / 2 - low) / (high - low)}%`, top: 0, textStyle: { fontSize: 11, fontWeight: 400, color: color("soft") } })),
    };
  });
}
/**
 * @param {number[]} row
 * @param {(v: number) => string} shown
 */
const binName = (row, shown) => (row[0] < 0 ? shown(0) : `${shown(2 ** row[0])} to ${shown(2 ** row[1])}`);

/** Without classes, what they would tell in words. */
function inWords() {
  const c = data.classes;
  if (data.mpi_classes || !c.bytes) return "";
  const gaps = c.gap ? `; between them ${ns(c.gap[0])} in the median, and half the time lies in gaps over ${ns(c.gap_by_time)}` : "";
  return `${many(c.messages, "message")} of ${bytes(c.bytes[0])} in the median, 90 % up to ${bytes(c.bytes[1])}${gaps}. `;
}

function histograms() {
  /** @type {[number, string][]} */
  const present = data.histograms.flatMap((each, i) => (each.size[0] > 0 ? [/** @type {[number, string]} */ ([i, each.name])] : []));
  const rules = "Sends of one thread that follow each other within 20 µs, with nothing received between them, are one message. Gaps lie between two messages of one direction of a connection.";
  const made = section("histograms", "Sizes of messages and gaps between them", "Sizes and gaps", present.length ? inWords() + rules : "No messages.");
  if (!present.length) return;
  let which = present[0][0];
  const sizes = el("div", { id: "sizes-chart", style: { height: "290px" } });
  const gaps = el("div", { id: "gaps-chart", style: { height: "290px" } });
  const rows = (/** @type {number[]} */ bins, /** @type {(v: number) => string} */ shown) => bins.flatMap((n, digits) => (n > 0 ? [[binName([digits - 1, digits], shown), count(n), percent(n / Math.max(1, sum(bins)))]] : []));
  const tables = [asTable("As a table", "Sizes of messages", ["Size", "Messages", "of all"], () => rows(data.histograms[which].sizes, bytes)), asTable("As a table", "Gaps between messages", ["Gap", "How many", "of all"], () => rows(data.histograms[which].gaps, ns))];
  const classed = Boolean(data.mpi_classes);
  const pick = present.length > 1 ? el("div", { class: "bar-head" }, choice("Messages", present, which, (key) => { which = key; a.draw(); b.draw(); tables.forEach((each) => each.refresh()); })) : null;
  made.append(el("div", null, pick, el("div", { class: "grid two" }, el("div", { class: "card" }, el("h3", null, "Sizes"), sizes, tables[0].box), el("div", { class: "card" }, el("h3", null, "Gaps"), gaps, tables[1].box))));
  const decades = (/** @type {number} */ most) => Array.from({ length: most }, (_, i) => 10 ** i);
  const a = histogram(sizes, "How many messages of which size", () => ({ bins: data.histograms[which].sizes, figures: data.histograms[which].size, show: bytes, bounds: classed ? [1000, 200000] : [], names: classed ? ["small", "medium", "large"] : [], decades: decades(10), what: "bytes of a message" }));
  const b = histogram(gaps, "How many gaps of which length", () => ({ bins: data.histograms[which].gaps, figures: data.histograms[which].gap, show: ns, bounds: classed ? [1e8, 1e9] : [], names: classed ? ["frequent", "medium", "rare"] : [], decades: decades(13), what: "time from one message to the next" }));
}
