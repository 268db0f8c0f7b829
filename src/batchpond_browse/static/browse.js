"use strict";
// Keys, the list that a page was opened from, and what is new in the lake. Every page works without it.
(() => {
  const LIST = "batchpond-list";
  const EVERY_MS = 4000;
  const PAGE_ROWS = 50;
  const one = (selector) => document.querySelector(selector);
  const rows = () => [...document.querySelectorAll("tr[data-row]")].filter((row) => row.querySelector("a.open"));
  const kept = (name) => { try { return JSON.parse(sessionStorage.getItem(name) || "null"); } catch { return null; } };
  const keep = (name, value) => { try { sessionStorage.setItem(name, JSON.stringify(value)); } catch { /* not kept */ } };

  // The rows of a list, for those who step from one to the next.
  function remember() {
    const found = rows().map((row) => row.querySelector("a.open").href);
    if (document.body.dataset.page === "list" && found.length) keep(LIST, { from: location.href, rows: found });
  }

  function place(id, href) {
    const link = document.getElementById(id);
    if (!link || !href) return;
    link.href = href;
    link.hidden = false;
  }

  function neighbours() {
    const list = kept(LIST);
    const at = list ? list.rows.indexOf(location.href.split("#")[0]) : -1;
    if (at < 0) return;
    place("previous", list.rows[at - 1]);
    place("next", list.rows[at + 1]);
    if (document.body.dataset.page === "case") place("up", list.from);
    const then = one("[data-then]");
    if (then && list.rows[at + 1]) {
      const next = new URL(list.rows[at + 1]);
      then.value = next.pathname + next.search;
    }
  }

  function select(step) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.classList.contains("here"));
    const next = Math.min(Math.max(now + step, 0), all.length - 1);
    all.forEach((row, number) => row.classList.toggle("here", number === next));
    all[next].querySelector("a.open").focus({ preventScroll: true });
    all[next].scrollIntoView({ block: "nearest" });
  }

  function follow(link) {
    if (link && !link.hidden) link.click();
  }

  const isStepping = () => Boolean(document.getElementById("next"));
  const up = () => document.getElementById("up") || [...document.querySelectorAll(".crumbs a")].at(document.body.dataset.page === "study" ? 0 : -1);
  const actions = {
    Escape: () => stop(),
    j: () => (isStepping() ? follow(document.getElementById("next")) : select(1)),
    k: () => (isStepping() ? follow(document.getElementById("previous")) : select(-1)),
    n: () => follow(one("a[rel=next]")),
    p: () => (document.body.dataset.page === "list" ? history.back() : undefined),
    u: () => follow(up()),
    "/": () => { const field = one("input[type=search]"); if (field) { field.focus(); field.select(); } },
    "?": () => { const keys = one("details.keys"); keys.open = !keys.open; if (keys.open) keys.scrollIntoView({ block: "nearest" }); },
  };

  // A look through a large plan goes on by itself, as far as a page is long, until somebody stops it.
  let looking = new AbortController();
  const fetched = async (href, signal) => {
    const answer = await fetch(href, { signal });
    return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  };
  const stop = () => looking.abort();
  async function further() {
    if (!document.body.dataset.pulse) return; // files ask nobody: the link leads on
    stop();
    looking = new AbortController();
    const { signal } = looking;
    for (let link = one("a[data-further]"); link && rows().length < PAGE_ROWS; link = one("a[data-further]")) {
      one("[data-stop]").hidden = false;
      const fresh = await fetched(link.href, signal).catch(() => null);
      if (signal.aborted || !fresh) break;
      const found = fresh.querySelectorAll("tr[data-row]");
      one("table.list tbody").append(...[...found].map((row) => document.importNode(row, true)));
      one("#further").replaceWith(document.importNode(fresh.querySelector("#further"), true));
      remember();
    }
    const button = one("[data-stop]");
    if (button && looking.signal === signal) button.hidden = true;
  }
  document.addEventListener("click", (event) => { if (event.target.closest("[data-stop]")) stop(); });

  listen(actions);

  // Forms come back to where they were; a name that was typed goes with the label.
  document.addEventListener("submit", (event) => {
    const here = event.target.querySelector("[data-here]");
    if (here) here.value = location.pathname + location.search;
    const rater = event.target.querySelector("[data-rater]");
    const name = one(".reader input[name=rater]");
    if (rater && name) rater.value = name.value;
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches(".filters select")) event.target.form.requestSubmit();
  });

  // What a writer published meanwhile is shown where nobody is writing something, or has written what is not handed in.
  const isChanged = (field) => field.type !== "hidden" && field.value !== field.defaultValue;
  const isWritten = () => [...document.querySelectorAll("main input, main textarea")].some(isChanged);
  async function look() {
    const body = document.body;
    if (!body.dataset.pulse || document.hidden || isTyping(document.activeElement) || isWritten()) return;
    const pulse = await (await fetch("/pulse")).text();
    if (pulse === body.dataset.pulse) return;
    const fresh = await fetched(location.href);
    if (!fresh) return;
    const at = rows().findIndex((row) => row.classList.contains("here"));
    const isOpen = [...document.querySelectorAll("main details")].map((folded) => folded.open);
    one("main").replaceChildren(...document.importNode(fresh.querySelector("main"), true).childNodes);
    document.querySelectorAll("main details").forEach((folded, number) => { if (number in isOpen) folded.open = isOpen[number]; });
    body.dataset.pulse = fresh.body.dataset.pulse;
    if (at >= 0) select(at + 1);
    remember();
    neighbours();
    void further();
    document.getElementById("status").textContent = "Shows what the lake has since " + new Date().toLocaleTimeString() + ".";
  }
  async function watch() {
    try { await look(); } catch { document.getElementById("status").textContent = "The server has ended: batchpond browse starts it again."; }
    setTimeout(watch, EVERY_MS);
  }

  remember();
  neighbours();
  void further();
  if (document.body.dataset.pulse) setTimeout(watch, EVERY_MS);
})();
