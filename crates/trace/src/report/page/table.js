// Tables that are sorted by their columns, searched, and used by keys.

/**
 * @template R
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: R) => string | number | null | undefined} key to sort by
 * @property {(row: R) => Child | Child[]} cell
 * @property {boolean} [numeric]
 * @property {boolean} [wide] may take several lines
 */
/**
 * @template R
 * @typedef {object} TableOptions
 * @property {string} id
 * @property {string} label
 * @property {number} [sort] column
 * @property {boolean} [down]
 * @property {number} [most] rows that are shown
 * @property {(row: R) => void} [onRow]
 * @property {(row: R) => boolean} [isChosen]
 * @property {(row: R) => string} [text] what is searched in
 * @property {(by: number, down: boolean) => void} [onSort]
 */

/**
 * @template R
 * @param {R[]} rows
 * @param {Column<R>[]} columns
 * @param {TableOptions<R>} options
 */
function table(rows, columns, { id, label, sort = 0, down = true, most = 400, onRow, isChosen, text, onSort }) {
  let [by, descending, wanted] = [sort, down, ""];
  const body = el("tbody", null);
  const note = el("p", { class: "note", "aria-live": "polite" });
  const heads = columns.map((column, i) => el("th", { class: column.numeric ? "num" : "", scope: "col" },
    el("button", { type: "button", onclick: () => { sortBy(i, by === i ? !descending : Boolean(column.numeric)); onSort?.(by, descending); } }, column.title || "%")));
  /** Those with the words as they were written, or else with all of them anywhere. */
  function found() {
    if (!text || !wanted) return rows;
    const all = rows.map((row) => text(row).toLowerCase());
    const words = wanted.split(/\s+/);
    const exact = rows.filter((_, i) => all[i].includes(wanted));
    return exact.length ? exact : rows.filter((_, i) => words.every((word) => all[i].includes(word)));
  }
  function order() {
    const { key } = columns[by];
    return found().slice().sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const way = typeof x === "string" || typeof y === "string" ? String(x ?? "").localeCompare(String(y ?? ""), undefined, { numeric: true }) : (x ?? -1) - (y ?? -1);
      return descending ? -way : way;
    });
  }
  /** What is shown. @type {[R, HTMLTableRowElement][]} */
  let lines = [];
  /** Which row is chosen; the rows stay, and with them what has the focus. */
  function mark() {
    for (const [row, tr] of lines) {
      const here = Boolean(isChosen?.(row));
      tr.classList.toggle("chosen", here);
      if (here) tr.setAttribute("aria-current", "true"); else tr.removeAttribute("aria-current");
    }
  }
  /** @param {R} row */
  function line(row) {
    const cells = columns.map((column, i) => {
      const content = column.cell(row);
      const inner = i === 0 && onRow ? el("button", { type: "button", class: "row", onclick: (/** @type {Event} */ event) => { event.stopPropagation(); onRow(row); } }, ...[content].flat()) : content;
      return el(i === 0 ? "th" : "td", { class: column.numeric ? "num" : column.wide ? "names" : "", scope: i === 0 ? "row" : null }, ...[inner].flat());
    });
    return el("tr", { class: onRow ? "click" : null, onclick: onRow ? () => onRow(row) : null }, cells);
  }
  function fill() {
    const sorted = order();
    heads.forEach((head, i) => {
      head.setAttribute("aria-sort", i === by ? (descending ? "descending" : "ascending") : "none");
      if (head.firstChild) head.firstChild.textContent = (columns[i].title || "%") + (i === by ? (descending ? " ↓" : " ↑") : "");
    });
    lines = sorted.slice(0, most).map((row) => [row, line(row)]);
    body.replaceChildren(...lines.map(([, tr]) => tr));
    mark();
    note.textContent = wanted ? `${count(sorted.length)} of ${count(rows.length)}` : sorted.length > most ? `The first ${count(most)} of ${count(sorted.length)}` : "";
    note.hidden = !note.textContent;
  }
  /**
   * @param {number} column
   * @param {boolean} downwards
   */
  function sortBy(column, downwards) {
    if (!columns[column]) return;
    [by, descending] = [column, downwards];
    fill();
  }
  // up and down lead from row to row
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...body.querySelectorAll("button.row")];
    const at = document.activeElement ? buttons.indexOf(document.activeElement) : -1;
    const next = step && at >= 0 ? buttons[at + step] : null;
    if (next instanceof HTMLElement) { event.preventDefault(); next.focus(); }
  });
  fill();
  const box = el("div", null, note, el("div", { class: "table", tabindex: onRow ? null : "0", role: "region", "aria-label": label }, el("table", { id }, el("thead", null, el("tr", null, heads)), body)));
  return { box, mark, order, sortBy, search: (/** @type {string} */ words) => { wanted = words.trim().toLowerCase(); fill(); } };
}
/**
 * @param {[number, string][]} parts shares and their colours
 * @param {string} label
 */
const shareBar = (parts, label) => el("div", { class: "share", title: label, role: "img", "aria-label": label }, parts.map(([share, tone]) => (share > 0 ? el("i", { style: { width: `${share * 100}%`, background: `var(--${tone})` } }) : null)));
