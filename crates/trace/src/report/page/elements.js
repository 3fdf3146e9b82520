// Elements that all parts of the page use. Text of the traced program only ever becomes text nodes.
/** @type {Data} */
const data = JSON.parse(must("data").textContent || "");

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
function must(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any> | null} About */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} name
 * @param {About} about attributes; `on...` are listeners, what is null or false is left out
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
function el(name, about, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(about || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(typeof child === "number" ? String(child) : child);
  return element;
}
/** @param {Child} text */
const small = (text) => el("small", null, text);
/** @param {string} tone */
const swatch = (tone) => el("i", { class: "swatch", style: { background: `var(--${tone})` } });
/**
 * What colours stand for.
 * @param {[string, string][]} tones
 * @param {...Child} more
 */
const legend = (tones, ...more) => el("div", { class: "legend-row" }, tones.map(([tone, name]) => el("span", null, swatch(tone), name)), ...more);

/**
 * A part of the page, with its link in the bar on top.
 * @param {string} id
 * @param {string} title
 * @param {string} short
 * @param {string | null} note
 * @param {...Child} children
 */
function section(id, title, short, note, ...children) {
  const link = el("a", { href: `#${id}`, onclick: (/** @type {Event} */ event) => { event.preventDefault(); goTo(id); } }, short);
  const bar = must("nav").firstElementChild;
  if (bar) bar.append(link);
  const made = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, tabindex: "-1" }, title), note ? el("p", { class: "note" }, note) : null, ...children);
  must("page").append(made);
  return made;
}
/** The address keeps other things than where one has scrolled to. @param {string} id */
function goTo(id) {
  must(id).scrollIntoView();
  must(`${id}-title`).focus({ preventScroll: true });
}

/**
 * A row of buttons of which one is chosen.
 * @template {string | number} K
 * @param {string} label
 * @param {[K, string][]} names
 * @param {K} chosen
 * @param {(key: K) => void} onChoose
 */
function choice(label, names, chosen, onChoose) {
  const box = el("div", { class: "choice", role: "group", "aria-label": label });
  for (const [key, name] of names) {
    box.append(el("button", {
      type: "button", "aria-pressed": String(key === chosen),
      onclick: (/** @type {Event} */ event) => {
        for (const button of box.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
        onChoose(key);
      },
    }, name));
  }
  return box;
}

/**
 * What a picture shows, for who does not see it, or wants the numbers: made when it is opened.
 * @param {string} name
 * @param {string} caption
 * @param {string[]} heads
 * @param {() => Child[][]} rows
 */
function asTable(name, caption, heads, rows) {
  const body = el("tbody", null);
  const fill = () => body.replaceChildren(...rows().map((row) => el("tr", null, row.map((cell, i) => el(i ? "td" : "th", i ? { class: "num" } : { scope: "row" }, cell)))));
  const box = el("details", { class: "as-table", ontoggle: () => { if (box.open) fill(); } },
    el("summary", null, name),
    el("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption },
      el("table", null, el("caption", { class: "unseen" }, caption), el("thead", null, el("tr", null, heads.map((head, i) => el("th", { scope: "col", class: i ? "num" : "" }, head)))), body)));
  return { box, refresh: () => { if (box.open) fill(); } };
}

/**
 * @param {string} title
 * @param {Child[]} lines
 */
const tipOf = (title, lines) => el("div", { class: "tip" }, el("b", null, title), lines.map((line) => el("div", null, line)));
/**
 * @param {{ clientX: number, clientY: number }} at
 * @param {Node | null} content
 */
function showTip(at, content) {
  const tip = must("tip");
  if (!content) { tip.style.display = "none"; return; }
  tip.replaceChildren(content);
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(at.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${at.clientY + 18 + box.height > innerHeight ? Math.max(4, at.clientY - box.height - 12) : at.clientY + 18}px`;
}

/**
 * Makes a function that does its work once however often it is asked, with the next picture; or soon, where no pictures are made.
 * @param {() => void} act
 */
function lazily(act) {
  let timer = 0;
  let frame = 0;
  const now = () => { clearTimeout(timer); cancelAnimationFrame(frame); timer = 0; act(); };
  return () => {
    if (timer) return;
    timer = setTimeout(now, 60);
    frame = requestAnimationFrame(now);
  };
}
