// What pages do beyond links and forms: keep numbers and charts up to date, tell
// times in the reader's zone, keys. Every page works without it.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const prefix = document.body.dataset.prefix.replace(/\/$/, "");
  const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };

  // Times: in the reader's zone, or in UTC.
  const zone = $("#zone");
  function showTimes(from = document) {
    const utc = remembered("tusk-zone") === "utc";
    const format = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", ...(utc ? { timeZone: "UTC" } : {}) });
    const name = utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const t of all("time", from)) {
      const text = format.format(new Date(t.dateTime)) + (utc ? " UTC" : "");
      if ("exact" in t.dataset) t.textContent = text; else t.title = text + (utc ? "" : " " + name);
    }
    if (zone) { zone.hidden = false; zone.textContent = "Times: " + name; }
  }
  zone?.addEventListener("click", () => { remember("tusk-zone", remembered("tusk-zone") === "utc" ? "local" : "utc"); showTimes(); });
  showTimes();

  // A page of something that goes on: the page is fetched again, and what differs is taken over.
  const main = $("main");
  function take(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const there = [...old.childNodes], wanted = [...fresh.childNodes];
    wanted.forEach((node, i) => {
      if (!there[i]) old.append(document.importNode(node, true));
      else if (there[i].nodeType === node.nodeType && there[i].nodeName === node.nodeName) take(there[i], node);
      else there[i].replaceWith(document.importNode(node, true));
    });
    for (const node of there.slice(wanted.length)) node.remove();
  }
  let asking = false, again = false;
  function renew() {
    if ($("input[name=id]:checked")) return; // what is selected stays where it is
    if (asking) { again = true; return; }
    asking = true;
    const ask = new XMLHttpRequest();
    ask.open("GET", location.href);
    ask.responseType = "document";
    ask.onload = () => {
      const fresh = ask.status === 200 && ask.responseXML ? $("main", ask.responseXML) : null;
      if (!fresh || new URL(ask.responseURL).pathname !== location.pathname) { location.reload(); return; }
      showTimes(fresh);
      take(main, fresh);
      count();
      document.title = ask.responseXML.title;
    };
    ask.onloadend = () => { asking = false; if (again) { again = false; renew(); } };
    ask.send();
  }

  // Numbers: the server names a cell and says its text. Nothing else is touched.
  const cells = new Map();
  for (const cell of all("[data-live]")) cells.set(cell.dataset.live, [...(cells.get(cell.dataset.live) ?? []), cell]);
  const button = $("#live");
  let source = null, watched = main.dataset.watch;
  function fill(texts, first) {
    for (const [name, text] of Object.entries(texts)) {
      for (const cell of cells.get(name) ?? []) {
        if (cell.textContent === text) continue;
        cell.textContent = text;
        if (first) continue;
        cell.classList.remove("changed");
        void cell.offsetWidth;
        cell.classList.add("changed");
      }
    }
  }
  function listen() {
    const wanted = (cells.size > 0 || watched) && !document.hidden && remembered("tusk-live") !== "off";
    button?.setAttribute("aria-pressed", String(remembered("tusk-live") !== "off"));
    if (!wanted) { source?.close(); source = null; return; }
    if (source) return;
    let first = true;
    source = new EventSource(watched ?? prefix + "/live");
    source.onmessage = (event) => {
      if (watched) { renew(); return; }
      fill(JSON.parse(event.data), first);
      first = false;
    };
    source.addEventListener("end", () => { source.close(); source = null; watched = undefined; renew(); });
  }
  if ((cells.size > 0 || watched) && button) button.parentElement.hidden = false;
  button?.addEventListener("click", () => { remember("tusk-live", remembered("tusk-live") === "off" ? "on" : "off"); listen(); });
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => source?.close());
  listen();

  // The list has an operation that is under way: look again.
  setInterval(() => { if ($("[data-running]") && !document.hidden && remembered("tusk-live") !== "off") renew(); }, 2000);

  // The chart.
  const box = $("[data-chart]");
  let chart = null;
  function draw(d) {
    const color = (name) => {
      const probe = document.createElement("i");
      probe.style.color = `var(--${name})`;
      box.append(probe);
      const value = getComputedStyle(probe).color;
      probe.remove();
      return value;
    };
    const bars = (offset) => uPlot.paths.bars({ size: [0.42, 28], align: offset });
    const ink = color("dim"), grid = { stroke: color("line"), width: 1 };
    const data = [d.t, d.done, d.fails];
    const utc = remembered("tusk-zone") === "utc" ? { timeZone: "UTC" } : {};
    const format = new Intl.DateTimeFormat("sv-SE", { ...utc, ...(d.range === "30d" ? { month: "2-digit", day: "2-digit" } : { hour: "2-digit", minute: "2-digit" }) });
    const clock = (t) => format.format(new Date(t * 1000));
    chart?.destroy();
    chart = new uPlot({
      width: box.clientWidth, height: 200, legend: { show: false }, cursor: { points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { range: (_, low, high) => { const half = d.t.length > 1 ? (d.t[1] - d.t[0]) / 2 : 30; return [low - half, high + half]; } }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 5)] } },
      axes: [{ stroke: ink, grid: { show: false }, ticks: grid, size: 32, values: (_, v) => v.map(clock) }, { stroke: ink, grid, ticks: { show: false }, size: 60, values: (_, v) => v.map((n) => n % 1 ? "" : n.toLocaleString("en").replaceAll(",", "\u202f")) }],
      series: [{}, { label: "completed", fill: color("accent"), stroke: color("accent"), width: 0, paths: bars(-1), points: { show: false } },
        { label: "failed", fill: color("bad"), stroke: color("bad"), width: 0, paths: bars(1), points: { show: false } }],
    }, data, box);
  }
  async function redraw() {
    if (document.hidden || remembered("tusk-live") === "off" && chart) return;
    const answer = await fetch(`${prefix}/series.json?range=${box.dataset.chart}`).catch(() => null);
    if (!answer?.ok) return;
    const d = await answer.json();
    draw(d);
    const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    for (const [name, text] of [["done", number(d.completed)], ["fails", number(d.failed)], ["wait", d.wait_p95], ["ran", d.ran_p95]]) $("#sum-" + name).textContent = text;
  }
  if (box && window.uPlot) {
    redraw();
    setInterval(redraw, 10000);
    let width = box.clientWidth;
    new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; chart?.setSize({ width, height: 200 }); } }).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  // Selecting rows.
  const boxes = () => all("input[name=id]");
  function count() {
    const n = boxes().filter((b) => b.checked).length, every = $("#all"), selected = $("#selected");
    if (selected) selected.textContent = n ? `${n} selected` : "";
    if (every) { every.hidden = false; every.checked = n > 0 && n === boxes().length; every.indeterminate = n > 0 && n < boxes().length; }
  }
  main.addEventListener("change", (event) => {
    if (event.target.id === "all") for (const b of boxes()) b.checked = event.target.checked;
    count();
  });
  count();

  // Keys.
  let at = -1, prefixed = false;
  function move(by) {
    const rows = all("[data-row]");
    if (!rows.length) return;
    rows[at]?.classList.remove("at");
    at = Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[at].classList.add("at");
    rows[at].scrollIntoView({ block: "nearest" });
    $("a", rows[at])?.focus({ preventScroll: true });
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    if (prefixed) {
      prefixed = false;
      $(`[data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    switch (event.key) {
      case "g": prefixed = true; setTimeout(() => { prefixed = false; }, 1500); return;
      case "/": {
        const search = $("#search");
        if (search) search.focus(); else location.href = prefix + "/tasks";
        break;
      }
      case "?": location.href = prefix + "/help"; break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": $("input[name=id]", all("[data-row]")[at] ?? document.createElement("i"))?.click(); break;
      case "r": $("[data-key=r]")?.click(); break;
      default: return;
    }
    event.preventDefault();
  });
})();
