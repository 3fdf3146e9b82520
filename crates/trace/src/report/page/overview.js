// What this program is: headline, warnings, classes, suggestions, matrices, histograms.
function headline() {
  const t = data.totals;
  const page = $("page");
  $("nav").append(el("div", {}, el("b", {}, "Polyrail report")));
  const [lead, ...rest] = data.finding.split(": ");
  page.append(el("header", {},
    el("div", { class: "command" }, data.command || "(no command recorded)"),
    el("h1", {}, data.sentence),
    el("p", { class: "finding" }, el("b", {}, lead), rest.length ? `: ${rest.join(": ")}` : ""),
  ));
  if (data.warnings.length) {
    page.append(el("div", { class: "warnings", id: "warnings", role: "alert" },
      el("b", {}, data.warnings.length === 1 ? "Before you believe this" : `Before you believe this (${data.warnings.length})`),
      el("ul", {}, data.warnings.map((warning) => el("li", {}, warning)))));
  }
  const tile = (value, label, bad) => el("div", { class: bad ? "tile bad" : "tile" }, el("div", { class: "value" }, value), el("div", { class: "label" }, label));
  page.append(el("div", { class: "tiles", id: "tiles" },
    tile(ns(data.span), data.date_ms ? `from ${new Date(data.date_ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "recorded"),
    tile(count(data.processes.length), data.processes.length === 1 ? "process" : "processes"),
    tile(brief(t.calls), "socket calls"),
    t.mpi ? tile(brief(t.mpi), "MPI calls") : null,
    tile(bytes(t.bytes), "through sockets"),
    tile(brief(t.messages), "messages"),
    tile(count(t.connections), "connections"),
    tile(count(t.retransmissions), "segments sent again", t.retransmissions > 0),
    tile(count(t.timeouts), "retransmission timeouts", t.timeouts > 0),
    tile(data.status === null ? "?" : String(data.status), "exit status", data.status !== 0),
    t.lost ? tile(count(t.lost), "records lost", true) : null,
  ));
}

function classCard(title, verdict, names, bounds, like, shares, what, ...figures) {
  const bar = el("div", { class: "bar", role: "img", "aria-label": shares.map((s, i) => `${names[i]} ${percent(s)}`).join(", ") },
    shares.map((share, i) => el("i", { class: names[i] === verdict ? "it" : "", style: { flex: `${share} 0 0` }, title: `${names[i]}: ${percent(share)} ${what}` })));
  return el("div", { class: "card class" },
    el("div", { class: "head" }, el("h3", {}, title), el("span", { class: "verdict" }, verdict || "too little to say")),
    bar,
    el("div", { class: "legend" }, names.map((name, i) => el("div", {}, name === verdict ? el("b", {}, name) : name, el("br"), bounds[i], el("br"), like[i]))),
    el("div", { class: "figures" }, figures.flat()));
}

function classes() {
  const c = data.classes;
  const m = data.mpi_classes;
  const bold = (text) => el("b", {}, text);
  const made = section("classes", "What kind of program", "Class", "Bounds and benchmarks (NAS) as in the classification of MPI programs over wide areas of 2009; bars show the share of each class.");
  const together = c.together || [0, 0];
  made.append(el("div", { class: "grid three" },
    classCard("Frequency", c.frequency, ["frequent", "medium", "rare"], ["gaps under 0.1 s", "0.1 to 1 s", "over 1 s"], ["CG MG LU", "BT SP", "FT IS"], c.time_by_gap, "of the time between messages",
      "Half the time between messages lies in gaps over ", bold(ns(c.gap_by_time)), ". Gap: median ", bold(ns(c.gap && c.gap[0])), ", 90 % under ", bold(ns(c.gap && c.gap[1])), ".", m && m.gap ? ["  Between MPI messages: median ", bold(ns(m.gap[0])), ` (${m.frequency}).`] : ""),
    classCard("Size", c.size, ["small", "medium", "large"], ["under 1 kB", "1 to 200 kB", "over 200 kB"], ["LU", "BT SP CG MG", "FT IS"], c.cost_by_size, "of the cost (12.5 kB per message and its bytes)",
      "Median ", bold(bytes(c.bytes && c.bytes[0])), ", 90 % up to ", bold(bytes(c.bytes && c.bytes[1])), ", of ", bold(count(c.messages)), " messages.", m && m.bytes ? ["  As MPI messages: median ", bold(bytes(m.bytes[0])), ", 90 % up to ", bold(bytes(m.bytes[1])), ` (${m.size}).`] : ""),
    classCard("Synchrony", c.synchrony, ["low", "medium", "high"], ["some send at once", "most, to few", "most, to most"], ["BT SP LU", "CG MG", "FT IS"],
      c.synchrony ? ["low", "medium", "high"].map((level) => Number(level === c.synchrony)) : [0, 0, 0], "",
      "Within ", bold(ns(data.slots[0])), " of a message ", bold(c.together ? percent(together[0]) : "–"), " of ", many(data.senders, "sender"), " send; within ", bold(ns(data.slots[1])), ", over ", bold(c.together ? percent(together[1]) : "–"), " of all pairs."),
  ));
}

function suggestions() {
  const made = section("suggestions", "What would help", "Suggestions", data.suggestions.length ? null : "Nothing in this run gives a reason to change anything on the network.");
  made.append(el("div", { class: "grid" }, data.suggestions.map((each) => el("div", { class: "card suggestion" },
    el("div", {}, el("h3", {}, each.title), el("p", {}, each.reason), el("code", {}, each.how)),
    el("div", { class: "cost" }, each.lost ? [ns(each.lost), el("small", {}, `${percent(each.lost / Math.max(data.span, 1))} of the run`)] : ""),
  ))));
}

// ---- matrices --------------------------------------------------------------------------------------------------------
const CELL = { bytes: 2, messages: 3, sends: 4, waited: 5, mpi_messages: 6, mpi_bytes: 7, mpi_waited: 8 };

/** Black or white, whichever can be read on a place of a ramp. */
function inkOn(tones, place) {
  const tone = tones[Math.max(0, Math.min(tones.length - 1, Math.round(place * (tones.length - 1))))];
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(tone.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.21 * r + 0.72 * g + 0.07 * b > 0.3 ? "#14181d" : "#ffffff";
}

function matrixChart(box, state) {
  const names = data.matrix.names;
  return chart(box, () => {
    const { field, transpose, show, tones, log, rows, columns } = state();
    const cells = data.matrix.cells.filter((cell) => cell[CELL[field]] > 0);
    const most = Math.max(1, ...cells.map((cell) => cell[CELL[field]]));
    const least = Math.min(most, ...cells.map((cell) => cell[CELL[field]]));
    const tone = (value) => (log ? Math.log10(value) : value);
    const [low, high] = [log ? tone(least) : 0, tone(most) + (log && least === most ? 1 : 0)];
    const place = (value) => (high > low ? (tone(value) - low) / (high - low) : 0);
    const labels = names.length <= 12;
    const axis = (name) => ({
      type: "category", data: names.map((each) => (each.length > 18 ? `${each.slice(0, 17)}…` : each)), name, nameLocation: "middle", nameGap: 0, nameTextStyle: { color: color("faint"), fontSize: 12 },
      axisLine: { show: false }, axisTick: { show: false }, splitArea: { show: false },
      axisLabel: { color: color("soft"), fontSize: 11, hideOverlap: true },
    });
    const long = Math.max(...names.map((name) => Math.min(name.length, 18)));
    const turn = names.length > 8 || long * 6.5 > 420 / names.length;
    return {
      grid: { left: 26 + long * 6.4, right: 10, top: 28 + (turn ? long * 5.4 : 14), bottom: 34 },
      xAxis: { ...axis(columns), position: "top", nameGap: turn ? 10 + long * 5.6 : 24, axisLabel: { ...axis("").axisLabel, rotate: turn ? 50 : 0 } },
      yAxis: { ...axis(rows), inverse: true, nameGap: 12 + long * 6.4 },
      visualMap: {
        min: low, max: high, calculable: false, orient: "horizontal", left: "center", bottom: 0, itemWidth: 10, itemHeight: 150,
        text: [show(most), log ? show(least) : "0"], textStyle: { color: color("soft"), fontSize: 11 }, inRange: { color: ramp(tones) }, hoverLink: false,
      },
      tooltip: {
        ...tipStyle(), formatter: (item) => {
          const cell = item.data.cell;
          return tipOf(transpose ? `${names[cell[1]]} waits for ${names[cell[0]]}` : `${names[cell[0]]} → ${names[cell[1]]}`,
            transpose
              ? [`waits ${ns(cell[CELL.waited])} at sockets`, `${ns(cell[CELL.mpi_waited])} in MPI calls that name it`]
              : [`${bytes(cell[CELL.bytes])} in ${many(cell[CELL.messages], "message")}, ${many(cell[CELL.sends], "send")}`, data.totals.mpi ? `MPI: ${bytes(cell[CELL.mpi_bytes])} in ${many(cell[CELL.mpi_messages], "message")}` : []]);
        },
      },
      series: [{
        type: "heatmap", data: cells.map((cell) => ({ value: [transpose ? cell[0] : cell[1], transpose ? cell[1] : cell[0], tone(cell[CELL[field]])], cell, label: { color: inkOn(ramp(tones), place(cell[CELL[field]])) } })),
        itemStyle: { borderColor: color("card"), borderWidth: names.length > 60 ? 0 : 2, borderRadius: names.length > 40 ? 0 : 3 },
        label: { show: labels, fontSize: 11.5, formatter: (item) => show(item.data.cell[CELL[field]]) },
        emphasis: { itemStyle: { borderColor: color("ink"), borderWidth: 1 } },
      }],
    };
  });
}

function matrices() {
  const merged = data.matrix.merged > 1 ? ` Each row stands for ${data.matrix.merged} processes.` : "";
  const made = section("matrix", "Who talks to whom, who waits for whom", "Matrix", `Bytes of sockets by the calls that sent them; of programs that were not traced, by what arrived.${merged}`);
  if (!data.matrix.cells.length) { made.append(el("div", { class: "card empty" }, "No process sent anything to another one.")); return; }
  let field = "bytes";
  let wait = "waited";
  const height = `${Math.min(520, Math.max(300, 110 + data.matrix.names.length * 52))}px`;
  const left = el("div", { id: "matrix-chart", style: { height } });
  const right = el("div", { id: "waits-chart", style: { height } });
  const mpi = data.totals.mpi > 0;
  let talk, idle;
  made.append(el("div", { class: "grid two" },
    el("div", { class: "card" }, el("div", { class: "bar-head" }, el("h3", {}, "Sent"),
      choice([["bytes", "Bytes"], ["messages", "Messages"], ["sends", "Sends"], ...(mpi ? [["mpi_bytes", "MPI bytes"], ["mpi_messages", "MPI messages"]] : [])], field, (key) => { field = key; talk.draw(); })), left),
    el("div", { class: "card" }, el("div", { class: "bar-head" }, el("h3", {}, "Waited"),
      mpi ? choice([["waited", "At sockets"], ["mpi_waited", "In MPI calls"]], wait, (key) => { wait = key; idle.draw(); }) : null), right)));
  talk = matrixChart(left, () => ({ field, transpose: false, show: field.includes("bytes") ? bytes : brief, tones: "ramp", log: true, rows: "sender", columns: "receiver" }));
  idle = matrixChart(right, () => ({ field: wait, transpose: true, show: ns, tones: "heat", log: false, rows: "who waits", columns: "for whom" }));
}

// ---- histograms ------------------------------------------------------------------------------------------------------
function histogram(box, state) {
  return chart(box, () => {
    const { bins, figures, show, bounds, names, decades, what } = state();
    const first = Math.max(0, bins.findIndex((n) => n > 0) - 1);
    const low = Math.max(0, Math.min(first, Math.floor(Math.log2(bounds[0])) - 2));
    const high = Math.max(bins.length, Math.ceil(Math.log2(bounds[1])) + 3);
    const all = figures[0];
    const most = Math.max(1, ...bins);
    const rows = bins.map((n, digits) => [digits - 1, digits, n]).filter((row) => row[2] > 0);
    const line = (value, name, style) => ({ xAxis: Math.log2(Math.max(value, 1)), label: { formatter: name, position: "end", color: color(style), fontSize: 11 }, lineStyle: { color: color(style), type: style === "faint" ? [2, 3] : "solid", width: style === "faint" ? 1 : 1.5 } });
    const ticks = decades.map((value) => Math.log2(value)).filter((x) => x >= low && x <= high);
    const middle = [[low, Math.log2(bounds[0])], [Math.log2(bounds[0]), Math.log2(bounds[1])], [Math.log2(bounds[1]), high]];
    return {
      grid: { left: 56, right: 14, top: 44, bottom: 38 },
      xAxis: { type: "value", min: low, max: high, axisLabel: { customValues: ticks, formatter: (x) => show(Math.round(2 ** x)), color: color("soft"), fontSize: 11, hideOverlap: true }, axisTick: { customValues: ticks }, splitLine: { show: false }, axisLine: { lineStyle: { color: color("line") } }, name: what, nameLocation: "middle", nameGap: 24, nameTextStyle: { color: color("faint"), fontSize: 12 } },
      yAxis: { type: "value", axisLabel: { formatter: brief, color: color("soft"), fontSize: 11 }, splitLine: { lineStyle: { color: color("line") } }, splitNumber: 4 },
      tooltip: { ...tipStyle(), trigger: "item", formatter: (item) => (item.data && item.data.length === 3 ? tipOf(item.data[0] < 0 ? show(0) : `${show(2 ** item.data[0])} to ${show(2 ** item.data[1])}`, `${count(item.data[2])}, ${percent(item.data[2] / Math.max(all, 1))} of all`) : "") },
      series: [{
        type: "custom", data: rows, clip: true,
        renderItem: (params, api) => {
          const a = api.coord([Math.max(api.value(0), low), api.value(2)]);
          const b = api.coord([api.value(1), 0]);
          return { type: "rect", shape: { x: a[0] + 1, y: a[1], width: Math.max(1, b[0] - a[0] - 2), height: b[1] - a[1], r: [2, 2, 0, 0] }, style: { fill: color("send") }, emphasis: { style: { fill: color("mpi-send") } } };
        },
        encode: { x: [0, 1], y: 2 },
        markLine: { symbol: "none", silent: true, data: [...bounds.map((bound) => line(bound, "", "faint")), ...(figures[1] === null ? [] : [line(figures[1], `median ${show(figures[1])}`, "ink")])] },
      }],
      graphic: [],
      title: middle.map(([from, to], i) => ({ text: names[i], textAlign: "center", left: `${4 + 94 * ((from + to) / 2 - low) / (high - low)}%`, top: 0, textStyle: { fontSize: 11, fontWeight: 400, color: color("faint") } })),
    };
  });
}

function histograms() {
  const made = section("histograms", "Sizes of messages and gaps between them", "Sizes and gaps", "Sends of one thread that follow each other within 20 µs, with nothing received between them, are one message. Gaps lie between two messages of one direction of a connection.");
  let which = 0;
  const present = data.histograms.map((each, i) => [i, each.name]).filter(([i]) => data.histograms[i].size[0] > 0);
  if (!present.length) { made.append(el("div", { class: "card empty" }, "No messages.")); return; }
  which = present[0][0];
  const sizes = el("div", { id: "sizes-chart", style: { height: "290px" } });
  const gaps = el("div", { id: "gaps-chart", style: { height: "290px" } });
  let a, b;
  made.append(el("div", { class: "bar-head", style: { marginBottom: "8px" } }, choice(present, which, (key) => { which = key; a.draw(); b.draw(); })),
    el("div", { class: "grid two" }, el("div", { class: "card" }, el("h3", {}, "Sizes"), sizes), el("div", { class: "card" }, el("h3", {}, "Gaps"), gaps)));
  a = histogram(sizes, () => ({ bins: data.histograms[which].sizes, figures: data.histograms[which].size, show: bytes, bounds: [1000, 200000], names: ["small", "medium", "large"], decades: [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9], what: "bytes of a message" }));
  b = histogram(gaps, () => ({ bins: data.histograms[which].gaps, figures: data.histograms[which].gap, show: ns, bounds: [1e8, 1e9], names: ["frequent", "medium", "rare"], decades: [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12], what: "time from one message to the next" }));
}
