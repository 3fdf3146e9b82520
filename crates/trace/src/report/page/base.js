// Figures, elements and colours that all parts of the page use. Text of the traced program only ever becomes text nodes.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

function el(name, about, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(about || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function scaled(value, units) {
  let best = units[0];
  for (const unit of units) if (Math.abs(value) >= unit[0]) best = unit;
  const size = value / best[0];
  const digits = Math.abs(size) >= 99.95 || (best[0] === 1 && Number.isInteger(size)) ? 0 : Math.abs(size) >= 9.995 ? 1 : 2;
  return `${Number(size.toFixed(digits))} ${best[1]}`;
}
const ns = (v) => (v === null || v === undefined ? "–" : v >= 120e9 ? `${(v / 60e9).toFixed(1)} min` : scaled(v, [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]));
const us = (v) => (v === null || v === undefined ? "–" : ns(v * 1000));
const bytes = (v) => (v === null || v === undefined ? "–" : scaled(v, [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"], [1e15, "PB"]]));
const rate = (v) => (v === null || v === undefined ? "–" : scaled(v * 8, [[1, "b/s"], [1e3, "kb/s"], [1e6, "Mb/s"], [1e9, "Gb/s"]]));
const count = (v) => Number(v).toLocaleString("en-US");
const brief = (v) => scaled(v, [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]]).trim();
const percent = (v) => {
  const p = v * 100;
  if (p === 0) return "0 %";
  return p < 0.01 ? "< 0.01 %" : `${p < 1 ? p.toFixed(2) : p < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
};
const many = (n, what, plural) => `${count(n)} ${n === 1 ? what : plural || what + "s"}`;
/** A moment of the run, with as many digits as a window of this length needs. */
const moment = (t, window) => {
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(Math.max(window, 1) / 1e9)) + 3));
  return `${(t / 1e9).toFixed(digits)} s`;
};

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const ramp = (name) => color(name).split(",").map((c) => c.trim());
const SOCKET_COLORS = ["send", "receive", "wait", "other"];
const MPI_COLORS = ["mpi-send", "mpi-receive", "mpi-wait", "mpi-collective", "mpi-onesided", "mpi-other"];
const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** Undoes page.rs's `packed`. */
async function unpack(text, Kind) {
  if (!text) return new Kind(0);
  const raw = atob(text);
  const packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

/** Charts are drawn again with other colours when the scheme changes. */
const charts = [];
function chart(element, option) {
  const made = echarts.init(element, null, { renderer: "canvas" });
  const draw = () => made.setOption({ animation: false, textStyle: { fontFamily: FONT, color: color("soft") }, ...option() }, { notMerge: true });
  draw();
  charts.push({ made, draw });
  return { made, draw };
}
const redraws = [];
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  charts.forEach((each) => each.draw());
  redraws.forEach((each) => each());
});
/** Makes a function that does its work once however often it is asked, with the next picture; or soon, where no pictures are made. */
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
addEventListener("resize", lazily(() => {
  charts.forEach((each) => each.made.resize());
  redraws.forEach((each) => each());
}));

const tipStyle = () => ({
  backgroundColor: color("tip"), borderColor: color("line"), borderWidth: 1, padding: [7, 10], confine: true,
  textStyle: { color: color("ink"), fontSize: 12.5, fontFamily: FONT }, transitionDuration: 0,
});
const tipOf = (title, ...lines) => el("div", { class: "tip" }, el("b", {}, title), lines.flat().map((line) => el("div", {}, line)));
function showTip(event, content) {
  const tip = $("tip");
  if (!content) { tip.style.display = "none"; return; }
  tip.replaceChildren(content);
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
}

/** A row of buttons of which one is chosen. */
function choice(names, chosen, onChoose) {
  const box = el("div", { class: "choice", role: "group" });
  names.forEach(([key, name]) => box.append(el("button", {
    type: "button", "aria-pressed": String(key === chosen),
    onclick: (event) => {
      for (const button of box.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      onChoose(key);
    },
  }, name)));
  return box;
}
function section(id, title, short, note, ...children) {
  $("nav").firstElementChild.append(el("a", { href: `#${id}` }, short));
  const made = el("section", { id }, el("h2", {}, title), note ? el("p", { class: "note" }, note) : null, ...children);
  $("page").append(made);
  return made;
}
