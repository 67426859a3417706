// Which page is shown is written in the address: # is the overview, #instance/3 one instance.

function route() {
  const page = document.getElementById("page"),
    found = location.hash.match(/^#instance\/(\d+)$/);
  tip.hide();
  if (found) drawInstance(page, Number(found[1]));
  else drawOverview(page);
}

addEventListener("hashchange", () => {
  route();
  scrollTo(0, 0);
});
route();
