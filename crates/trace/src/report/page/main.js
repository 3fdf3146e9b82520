// Everything in the order in which it is read: what matters most on the first screen.
addEventListener("error", () => { document.documentElement.dataset.state = "failed"; });
addEventListener("unhandledrejection", () => { document.documentElement.dataset.state = "failed"; });
headline();
timeline().then(async () => {
  restoreView();
  await connectionPart();
  connections();
  against();
  suggestions();
  matrices();
  paths();
  rails();
  histograms();
  failures();
  processes();
  calls();
  classes();
  footer();
  // a link into the page, as those of the bar on top are when they are opened in another tab
  const part = location.hash.slice(1);
  if (part && !part.includes("=") && document.getElementById(`${part}-title`)) goTo(part);
  document.documentElement.dataset.state = "ready";
});
