// Who talks to whom, who waits for whom.
/** Columns of data.matrix.cells. @type {Record<string, number>} */
const CELL = { bytes: 2, messages: 3, sends: 4, waited: 5, mpi_messages: 6, mpi_bytes: 7, mpi_waited: 8 };
const LABEL = 18;

/**
 * @typedef {object} MatrixState
 * @property {string} field
 * @property {boolean} transpose
 * @property {(v: number) => string} show
 * @property {string} tones
 * @property {boolean} log
 * @property {string} rows
 * @property {string} columns
 */
/**
 * @param {HTMLElement} box
 * @param {string} label
 * @param {() => MatrixState} state
 */
function matrixChart(box, label, state) {
  const names = data.matrix.names;
  return chart(box, label, () => {
    const { field, transpose, show: shown, tones, log, rows, columns } = state();
    const cells = data.matrix.cells.filter((cell) => cell[CELL[field]] > 0);
    const most = Math.max(1, ...cells.map((cell) => cell[CELL[field]]));
    const least = Math.min(most, ...cells.map((cell) => cell[CELL[field]]));
    const tone = (/** @type {number} */ value) => (log ? Math.log10(value) : value);
    const [low, high] = [log ? tone(least) : 0, tone(most) + (log && least === most ? 1 : 0)];
    const place = (/** @type {number} */ value) => (high > low ? (tone(value) - low) / (high - low) : 0);
    // a phone has room for shorter names, and for none of the figures
    const narrow = box.clientWidth < 480;
    const labels = names.length <= (narrow ? 4 : 12);
    const room = narrow ? 11 : LABEL;
    const long = Math.max(...names.map((name) => Math.min(name.length, room)));
    const turn = names.length > 8 || long * 6.5 > (box.clientWidth - 26 - long * 6.4) / names.length;
    const axis = (/** @type {string} */ name) => ({
      type: "category", data: names.map((each) => shortened(each, room)), name, nameLocation: "middle", nameGap: 0, nameTextStyle: { color: color("soft"), fontSize: 12 },
      axisLine: { show: false }, axisTick: { show: false }, splitArea: { show: false },
      axisLabel: { color: color("soft"), fontSize: 11, hideOverlap: true },
    });
    return {
      grid: { left: 26 + long * 6.4, right: 10, top: 28 + (turn ? long * 5.4 : 14), bottom: 34 },
      xAxis: { ...axis(columns), position: "top", nameGap: turn ? 10 + long * 5.6 : 24, axisLabel: { ...axis("").axisLabel, rotate: turn ? 50 : 0 } },
      yAxis: { ...axis(rows), inverse: true, nameGap: 12 + long * 6.4 },
      visualMap: {
        min: low, max: high, calculable: false, orient: "horizontal", left: "center", bottom: 0, itemWidth: 10, itemHeight: 150,
        text: [shown(most), log ? shown(least) : "0"], textStyle: { color: color("soft"), fontSize: 11 }, inRange: { color: ramp(tones) }, hoverLink: false,
      },
      tooltip: {
        ...tipStyle(), formatter: (/** @type {any} */ item) => {
          const cell = item.data.cell;
          return tipOf(transpose ? `${names[cell[1]]} waits for ${names[cell[0]]}` : `${names[cell[0]]} → ${names[cell[1]]}`,
            transpose
              ? [`waits ${ns(cell[CELL.waited])} at sockets`, `${ns(cell[CELL.mpi_waited])} in MPI calls that name it`]
              : [`${bytes(cell[CELL.bytes])} in ${many(cell[CELL.messages], "message")}, ${many(cell[CELL.sends], "send")}`, data.totals.mpi ? `MPI: ${bytes(cell[CELL.mpi_bytes])} in ${many(cell[CELL.mpi_messages], "message")}` : ""]);
        },
      },
      series: [{
        type: "heatmap", data: cells.map((cell) => ({ value: [transpose ? cell[0] : cell[1], transpose ? cell[1] : cell[0], tone(cell[CELL[field]])], cell, label: { color: inkOn(between(ramp(tones), place(cell[CELL[field]]))) } })),
        itemStyle: { borderColor: color("card"), borderWidth: names.length > 60 ? 0 : 2, borderRadius: names.length > 40 ? 0 : 3 },
        label: { show: labels, fontSize: 11.5, formatter: (/** @type {any} */ item) => shown(item.data.cell[CELL[field]]) },
        emphasis: { itemStyle: { borderColor: color("ink"), borderWidth: 1 } },
      }],
    };
  });
}

function matrices() {
  const { names, cells, merged } = data.matrix;
  const each = merged > 1 ? ` Each row stands for ${merged} processes.` : "";
  const made = section("matrix", "Who talks to whom, who waits for whom", "Matrix", cells.length ? `Bytes of sockets by the calls that sent them; of programs that were not traced, by what arrived.${each}` : "No process sent anything to another one.");
  if (!cells.length) return;
  let field = "bytes";
  let wait = "waited";
  const height = `${Math.min(520, Math.max(300, 110 + names.length * 52))}px`;
  const left = el("div", { id: "matrix-chart", style: { height } });
  const right = el("div", { id: "waits-chart", style: { height } });
  const mpi = data.totals.mpi > 0;
  const bySize = (/** @type {number} */ column) => cells.slice().sort((a, b) => b[column] - a[column]).slice(0, 300).filter((cell) => cell[column] > 0);
  const sent = asTable("As a table", "What was sent", ["From and to", "Bytes", "Messages", "Sends", ...(mpi ? ["MPI bytes", "MPI messages"] : [])],
    () => bySize(CELL[field]).map((cell) => [`${names[cell[0]]} → ${names[cell[1]]}`, bytes(cell[2]), count(cell[3]), count(cell[4]), ...(mpi ? [bytes(cell[7]), count(cell[6])] : [])]));
  const waits = asTable("As a table", "Who waits for whom", ["Who waits, and for whom", "At sockets", ...(mpi ? ["In MPI calls"] : [])],
    () => bySize(CELL[wait]).map((cell) => [`${names[cell[1]]} for ${names[cell[0]]}`, ns(cell[5]), ...(mpi ? [ns(cell[8])] : [])]));
  /** @type {[string, string][]} */
  const fields = [["bytes", "Bytes"], ["messages", "Messages"], ["sends", "Sends"], ...(mpi ? /** @type {[string, string][]} */ ([["mpi_bytes", "MPI bytes"], ["mpi_messages", "MPI messages"]]) : [])];
  made.append(el("div", { class: "grid two" },
    el("div", { class: "card" }, el("div", { class: "bar-head" }, el("h3", null, "Sent"), choice("What is shown", fields, field, (key) => { field = key; talk.draw(); sent.refresh(); })), left, sent.box),
    el("div", { class: "card" }, el("div", { class: "bar-head" }, el("h3", null, "Waited"),
      mpi ? choice("What is shown", [["waited", "At sockets"], ["mpi_waited", "In MPI calls"]], wait, (key) => { wait = key; idle.draw(); waits.refresh(); }) : null), right, waits.box)));
  const talk = matrixChart(left, "What each sender sent to each receiver", () => ({ field, transpose: false, show: field.includes("bytes") ? bytes : brief, tones: "ramp", log: true, rows: "sender", columns: "receiver" }));
  const idle = matrixChart(right, "How long each process waited for each other one", () => ({ field: wait, transpose: true, show: ns, tones: "heat", log: false, rows: "who waits", columns: "for whom" }));
}
