// Figures of the part of the run that is looked at, in all and by process.

/**
 * Time by class, in ns, of a process's lanes of one kind.
 * @param {number} process
 * @param {boolean} mpi
 */
function timesInView(process, mpi) {
  const lane = laneBy.get(process * 2 + Number(mpi));
  const total = tonesOf(mpi).map(() => 0);
  if (!lane) return total;
  if (!lane.complete) {
    const span = view.to - view.from;
    sharesAt(lane, view.from, view.to).forEach((share, c) => { total[c] += share * span; });
    return total;
  }
  const { start, took } = lane.kept;
  for (let i = firstAt(start, lane.longest, view.from); i < start.length && start[i] <= view.to; i++) {
    total[lane.kept.class[i]] += Math.max(0, Math.min(view.to, start[i] + took[i]) - Math.max(view.from, start[i]));
  }
  return total;
}

/** @typedef {{ process: number, sockets: number[], mpi: number[], sent: number, received: number, calls: number }} InView */
/** @returns {InView[]} */
function processesInView() {
  const within = (/** @type {number} */ process, /** @type {number} */ which) => Math.round(moved[process][which].within(view.from, view.to));
  return data.processes.map((_, process) => ({
    process, sockets: timesInView(process, false), mpi: timesInView(process, true), sent: within(process, 0), received: within(process, 1), calls: within(process, 2),
  }));
}

/** @param {(sentence: string) => void} tell who else says it */
function selectionPart(tell) {
  const line = el("p", { id: "selection" });
  const span = () => Math.max(1, view.to - view.from);
  const share = (/** @type {number} */ time) => (time > 0 ? percent(time / span()) : "–");
  const [names, mpiNames] = data.timeline.classes;
  const heads = ["Process", ...(data.hosts.length > 1 ? ["Host"] : []), ...(data.totals.mpi ? mpiNames : []), ...names, "Sent", "Received", "Socket calls"];
  const table = asTable("Processes as a table", "What each process did in this part of the run", heads, () => processesInView().slice(0, 400).map((row) => {
    const process = data.processes[row.process];
    return [
      process.name, ...(data.hosts.length > 1 ? [data.hosts[process.host]?.name ?? "?"] : []), ...(data.totals.mpi ? row.mpi.map(share) : []), ...row.sockets.map(share),
      bytes(row.sent), bytes(row.received), count(row.calls),
    ];
  }));
  /** What the whole program did, in a sentence. */
  function sentence() {
    const all = processesInView();
    const total = (/** @type {(row: InView) => number} */ get) => sum(all.map(get));
    const lives = Math.max(1, sum(data.processes.map((each) => Math.max(0, Math.min(view.to, each.span[1]) - Math.max(view.from, each.span[0])))));
    const parts = (/** @type {string[]} */ words, /** @type {(row: InView) => number[]} */ get) => words.flatMap((word, c) => {
      const time = total((row) => get(row)[c]);
      return time > 0 ? [`${word} ${percent(time / lives)}`] : [];
    });
    const shares = [...(data.totals.mpi ? parts(mpiNames, (row) => row.mpi) : []), ...parts(names, (row) => row.sockets)].join(", ");
    const sent = total((row) => row.sent);
    const received = total((row) => row.received);
    return `In view: ${bytes(sent)} sent (${speed(sent / span() * 1e9)}), ${bytes(received)} received, ${many(total((row) => row.calls), "socket call")}${shares ? `; of the processes' time ${shares}` : ""}.`;
  }
  const refresh = () => {
    const text = sentence();
    line.textContent = text;
    tell(text);
    table.refresh();
  };
  refresh();
  viewers.push(lazily(refresh));
  table.box.id = "selection-table";
  return { line, table: table.box };
}
