// Everything in the order in which it is read.
addEventListener("error", () => { document.documentElement.dataset.state = "failed"; });
addEventListener("unhandledrejection", () => { document.documentElement.dataset.state = "failed"; });
headline();
classes();
suggestions();
matrices();
histograms();
timeline().then(() => {
  paths();
  connections();
  processes();
  calls();
  footer();
  document.documentElement.dataset.state = "ready";
});
