// What kind of MPI program it is, by the classification of the NAS benchmarks.

/**
 * @typedef {object} ClassCard
 * @property {string} title
 * @property {string | null} verdict
 * @property {string[]} names
 * @property {string[]} bounds
 * @property {string[]} like
 * @property {number[]} shares
 * @property {string} what
 */
/**
 * @param {ClassCard} about
 * @param {...(Child | Child[])} figures
 */
function classCard({ title, verdict, names, bounds, like, shares, what }, ...figures) {
  const bar = el("div", { class: "bar", role: "img", "aria-label": shares.map((s, i) => `${names[i]} ${percent(s)}`).join(", ") },
    shares.map((share, i) => el("i", { class: names[i] === verdict ? "it" : "", style: { flex: `${share} 0 0` }, title: `${names[i]}: ${percent(share)} ${what}` })));
  return el("div", { class: "card class" },
    el("div", { class: "head" }, el("h3", null, title), el("span", { class: "verdict" }, verdict || "too little to say")),
    bar,
    el("div", { class: "legend" }, names.map((name, i) => el("div", null, name === verdict ? el("b", null, name) : name, el("br", null), bounds[i], el("br", null), like[i]))),
    el("div", { class: "figures" }, ...figures));
}

function classes() {
  const m = data.mpi_classes;
  if (!m) return;
  // its own messages, where MPI's calls tell most of them, or none went through a socket
  const c = data.own_classes || (data.classes.messages ? data.classes : m);
  const [other, how] = c === data.classes ? [m, "As MPI messages"] : [data.classes, "Through sockets"];
  const bold = (/** @type {string} */ text) => el("b", null, text);
  const made = section("classes", "What kind of MPI program", "Class", `${c === data.classes ? "Messages as sockets carry them" : "Messages as MPI's calls send them"}. Bounds and benchmarks (NAS) as in the classification of MPI programs over wide areas of 2009; bars show the share of each class.`);
  if (!c.messages) { made.append(el("p", { class: "note" }, "It sent no messages.")); return; }
  const levels = ["low", "medium", "high"];
  made.append(el("div", { class: "grid three" },
    classCard({ title: "Frequency", verdict: c.frequency, names: ["frequent", "medium", "rare"], bounds: ["gaps under 0.1 s", "0.1 to 1 s", "over 1 s"], like: ["CG MG LU", "BT SP", "FT IS"], shares: c.time_by_gap, what: "of the time between messages" },
      ...(c.gap ? ["Half the time between messages lies in gaps over ", bold(ns(c.gap_by_time)), ". Gap: median ", bold(ns(c.gap[0])), ", 90 % under ", bold(ns(c.gap[1])), "."] : ["No message followed another one."]),
      other.gap ? [`  ${how}: median `, bold(ns(other.gap[0])), ` (${other.frequency}).`] : ""),
    classCard({ title: "Size", verdict: c.size, names: ["small", "medium", "large"], bounds: ["under 1 kB", "1 to 200 kB", "over 200 kB"], like: ["LU", "BT SP CG MG", "FT IS"], shares: c.cost_by_size, what: "of the cost (12.5 kB per message and its bytes)" },
      "Half the cost is that of messages over ", bold(bytes(c.size_by_cost)), ". Median ", bold(bytes(c.bytes && c.bytes[0])), ", 90 % up to ", bold(bytes(c.bytes && c.bytes[1])), ", of ", bold(count(c.messages)), " messages.",
      other.bytes ? [`  ${how}: median `, bold(bytes(other.bytes[0])), ", 90 % up to ", bold(bytes(other.bytes[1])), ` (${other.size}).`] : ""),
    classCard({ title: "Synchrony", verdict: c.synchrony, names: levels, bounds: ["some send at once", "most, to few", "most, to most"], like: ["BT SP LU", "CG MG", "FT IS"], shares: levels.map((level) => Number(level === c.synchrony)), what: "" },
      ...(c.together ? ["When one sends, ", bold(percent(c.together[0])), " of ", many(data.senders, "sender"), ` send at about the same time (within ${ns(data.slots[0])}), over `, bold(percent(c.together[1])), ` of all pairs (within ${ns(data.slots[1])}).`] : ["Too few messages to tell who sends at the same time."])),
  ));
}
