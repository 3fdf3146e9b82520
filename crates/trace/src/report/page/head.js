// What this program is: command, headline, what must be known, and the few figures that matter.
/**
 * @param {string} value
 * @param {string} label
 * @param {boolean} bad
 */
const tile = (value, label, bad) => el("div", { class: bad ? "tile bad" : "tile" }, el("div", { class: "value" }, value), el("div", { class: "label" }, label.replace(/ %/g, "\u00a0%")));

function headline() {
  const page = must("page");
  must("nav").append(el("div", null, el("b", null, "Polyrail report")));
  const [lead, ...rest] = data.finding.split(": ");
  page.append(el("header", null,
    el("div", { class: "command" }, data.command || "(no command recorded)"),
    el("h1", null, data.sentence),
    el("p", { class: "finding" }, el("b", null, lead), rest.length ? `: ${rest.join(": ")}` : ""),
  ));
  if (data.warnings.length) {
    page.append(el("div", { class: "warnings", id: "warnings", role: "alert" },
      el("b", null, data.warnings.length === 1 ? "Before you believe this" : `Before you believe this (${data.warnings.length})`),
      el("ul", null, data.warnings.map((warning) => el("li", null, warning)))));
  }
  const date = data.date_ms ? `from ${new Date(data.date_ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "recorded";
  page.append(el("div", { class: "tiles", id: "keys" }, tile(ns(data.span), date, false), data.keys.map((key) => tile(key.value, key.label, key.bad))));
}

function suggestions() {
  const made = section("suggestions", "What would help", "Suggestions", data.suggestions.length ? null : "Nothing in this run gives a reason to change anything on the network.");
  if (!data.suggestions.length) return;
  made.append(el("div", { class: "grid" }, data.suggestions.map((each) => el("div", { class: "card suggestion" },
    el("div", null, el("h3", null, each.title), el("p", null, each.reason), el("code", null, each.how)),
    el("div", { class: "cost" }, each.lost ? [ns(each.lost), small(`${percent(each.lost / Math.max(data.span, 1))} of the run`)] : ""),
  ))));
}
