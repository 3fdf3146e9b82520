// What is looked at, kept in the address behind "#", so that a link or the back button leads there again.

/** @returns {Map<string, string>} */
function readAddress() {
  const text = location.hash.slice(1);
  return new Map(text.includes("=") ? new URLSearchParams(text) : []);
}
let kept = readAddress();
/** @type {((kept: Map<string, string>) => void)[]} */
const returns = [];
let writing = 0;

/**
 * Keeps some of it; null: no more. A row of quick changes is one step back.
 * @param {Record<string, string | number | null>} changes
 */
function keep(changes) {
  for (const [key, value] of Object.entries(changes)) if (value === null || value === "") kept.delete(key); else kept.set(key, String(value));
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 300);
}
function writeAddress() {
  const text = new URLSearchParams([...kept]).toString();
  if (text === location.hash.slice(1)) return;
  // a page in a frame may not be allowed to: then its address stays as it is
  try { history.pushState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* it can be used without */ }
}
addEventListener("popstate", () => {
  clearTimeout(writing);
  kept = readAddress();
  returns.forEach((each) => each(kept));
});
/** @param {string} key */
const keptNumber = (key) => {
  const text = kept.get(key);
  return text !== undefined && Number.isFinite(Number(text)) ? Number(text) : null;
};
