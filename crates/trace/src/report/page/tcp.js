// What TCP did to the chosen direction of a connection: its windows and round trips, and what was sent again.

/**
 * @typedef {object} Windows
 * @property {Float64Array} at
 * @property {Uint32Array} cwnd_low
 * @property {Uint32Array} cwnd_high
 * @property {Uint32Array} ssthresh
 * @property {Uint32Array} flight
 * @property {Uint32Array} rtt
 * @property {Uint32Array} again
 * @property {Uint32Array} timeouts
 */
/** @param {WindowsData} packed @returns {Promise<Windows>} */
async function loadWindows(packed) {
  const whole = (/** @type {string} */ column) => unpack(column, Uint32Array);
  return {
    at: await unpack(packed.at, Float64Array), cwnd_low: await whole(packed.cwnd_low), cwnd_high: await whole(packed.cwnd_high), ssthresh: await whole(packed.ssthresh),
    flight: await whole(packed.flight), rtt: await whole(packed.rtt), again: await whole(packed.again), timeouts: await whole(packed.timeouts),
  };
}

/** @param {Windows} s */
function pointsInView(s) {
  let [a, b] = [0, s.at.length];
  while (a < b - 1 && s.at[a + 1] < view.from) a++;
  while (b > a + 1 && s.at[b - 1] > view.to) b--;
  return [a, Math.min(s.at.length, b + 1)];
}

/** The chart, and what it says in words. */
function tcpChart() {
  const box = el("div", { id: "tcp-chart", style: { height: "280px" } });
  const unseen = el("p", { class: "note" }, "TCP was not looked at in this connection, so there is no window to show.");
  const tones = legend([["send", "congestion window"], ["other", "slow-start threshold"], ["receive", "in flight"], ["bad", "sent again ▲, after a timeout ◆"], ["wait", "collapsed after idle ┊"], ["mpi-collective", "round trip"]]);
  const table = asTable("As a table", "What TCP did", ["At", "Congestion window", "Threshold", "In flight", "Round trip", "Sent again"], () => {
    const s = chosen.windows;
    if (!s) return [];
    const mss = data.connections[chosen.index][chosen.way].mss || 1448;
    const [a, b] = pointsInView(s);
    const step = Math.max(1, Math.ceil((b - a) / 40));
    const rows = [];
    for (let i = a; i < b; i += step) rows.push([moment(s.at[i], view.to - view.from), bytes(s.cwnd_low[i] * mss), s.ssthresh[i] ? bytes(s.ssthresh[i] * mss) : UNKNOWN, bytes(s.flight[i]), s.rtt[i] ? us(s.rtt[i]) : UNKNOWN, count(sum([...s.again.subarray(i, Math.min(b, i + step))]))]);
    return rows;
  });
  /** @type {{ draw: () => void } | null} */
  let made = null;
  const drawn = el("div", null, tones, box, table.box);
  const refresh = () => {
    drawn.hidden = !chosen.windows;
    unseen.hidden = Boolean(chosen.windows);
    if (!chosen.windows) return;
    // the box has its size only when it is in the page
    if (made) made.draw();
    else {
      made = chart(box, "Congestion window, bytes in flight and round trip over time", () => (chosen.windows ? tcpOption(chosen.windows) : {}));
      movable(box);
    }
    table.refresh();
  };
  viewers.push(lazily(() => { if (made && chosen.windows) { made.draw(); table.refresh(); } }));
  const inView = () => {
    const s = chosen.windows;
    if (!s) return "";
    const [a, b] = pointsInView(s);
    let [again, most] = [0, 0];
    for (let i = a; i < b; i++) {
      if (s.at[i] < view.from || s.at[i] > view.to) continue;
      again += s.again[i];
      most = Math.max(most, s.rtt[i]);
    }
    // the kernel's own count has also those that no event told of
    if (view.from <= 0 && view.to >= data.span) again = data.connections[chosen.index][chosen.way].retransmissions;
    return `${many(again, "segment")} sent again${most ? `, round trip at most ${us(most)}` : ""}`;
  };
  return { box: el("div", null, drawn, unseen), refresh, inView };
}

/** @param {Windows} s */
function tcpOption(s) {
  const one = data.connections[chosen.index][chosen.way];
  const mss = one.mss || 1448;
  const [a, b] = pointsInView(s);
  /** @type {number[][][]} */
  const [cwnd, ssthresh, flight, rtt, again, timeouts] = [[], [], [], [], [], []];
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
  [...again, ...timeouts].forEach((mark) => { mark[1] = top * 1.06; });
  const restarts = one.restarts.filter((r) => r[0] >= view.from && r[0] <= view.to);
  const wide = frame.gutter > 100;
  const { ticks, step } = niceTicks(view.from, view.to, wide ? 9 : 3);
  const x = (/** @type {number} */ grid, /** @type {boolean} */ labels) => ({ type: "value", gridIndex: grid, min: view.from, max: view.to, splitLine: { show: false }, axisLine: { lineStyle: { color: color("line") } }, axisTick: { customValues: ticks, show: labels }, axisLabel: { show: labels, customValues: ticks, formatter: (/** @type {number} */ t) => tickText(t, step), color: color("soft"), fontSize: 11, hideOverlap: true } });
  const y = (/** @type {number} */ grid, /** @type {string} */ name, /** @type {(v: number) => string} */ formatter, /** @type {object} */ extra) => ({ type: "value", gridIndex: grid, min: 0, name: wide ? name : "", nameLocation: "middle", nameGap: 62, nameTextStyle: { color: color("soft"), fontSize: 11 }, splitNumber: grid ? 2 : 4, axisLabel: { color: color("soft"), fontSize: 11, formatter }, splitLine: { lineStyle: { color: color("line") } }, ...extra });
  const line = (/** @type {string} */ name, /** @type {number[][]} */ rows, /** @type {string} */ tone, /** @type {object} */ style, /** @type {object} */ extra) => ({ name, type: "line", data: rows, showSymbol: rows.length < 60, symbolSize: 3, step: "end", lineStyle: { width: 1.4, color: color(tone), ...style }, itemStyle: { color: color(tone) }, emphasis: { disabled: true }, ...extra });
  const marks = (/** @type {string} */ name, /** @type {number[][]} */ rows, /** @type {string} */ symbol) => ({ name, type: "scatter", data: rows, symbol, symbolSize: 9, itemStyle: { color: color("bad") }, tooltip: { trigger: "item" } });
  return {
    grid: [{ left: frame.gutter, right: frame.right, top: 14, height: 150 }, { left: frame.gutter, right: frame.right, top: 188, height: 62 }],
    xAxis: [x(0, false), x(1, true)],
    yAxis: [y(0, "window", (v) => bytes(v), { max: niceMax(top * 1.14, mss) }), y(1, "round trip", (v) => `${Number(v.toPrecision(3))} ms`, {})],
    axisPointer: { link: [{ xAxisIndex: "all" }], lineStyle: { color: color("soft") }, label: { show: false } },
    tooltip: { ...tipStyle(), trigger: "axis", formatter: (/** @type {any} */ items) => tcpTip(Array.isArray(items) ? items : [items], mss) },
    series: [
      line("congestion window", cwnd, "send", {}, { areaStyle: { color: color("send"), opacity: 0.09 }, markLine: { symbol: "none", silent: true, label: { show: false }, lineStyle: { color: color("wait"), width: 1, type: [4, 3] }, data: restarts.map((r) => ({ xAxis: r[0] })) } }),
      line("slow-start threshold", ssthresh, "other", { type: [5, 3], width: 1.2 }, { showSymbol: false }),
      line("in flight", flight, "receive", { width: 1 }, {}),
      marks("sent again", again, "triangle"), marks("sent again after a timeout", timeouts, "diamond"),
      { ...line("round trip", rtt, "mpi-collective", {}, {}), xAxisIndex: 1, yAxisIndex: 1 },
    ],
  };
}

/**
 * @param {any[]} items
 * @param {number} mss
 */
function tcpTip(items, mss) {
  if (!items.length) return "";
  const seen = new Set();
  const lines = [];
  for (const item of items) {
    if (seen.has(item.seriesName)) continue;
    seen.add(item.seriesName);
    const v = item.data[1];
    if (item.seriesType === "scatter") lines.push(`${item.seriesName}: ${many(item.data[2], "segment")}`);
    else if (item.seriesName === "round trip") lines.push(`round trip ${us(v * 1000)}`);
    else lines.push(item.seriesName === "in flight" ? `in flight ${bytes(v)}` : `${item.seriesName} ${bytes(v)} (${count(Math.round(v / mss))} segments)`);
  }
  return tipOf(`at ${moment(items[0].data[0], view.to - view.from)}`, lines);
}
