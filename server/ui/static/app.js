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
    const format = new Intl.DateTimeFormat("sv-SE", {
      dateStyle: "short", timeStyle: "medium", ...(utc ? { timeZone: "UTC" } : {})
    });
    const name = utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const t of all("time", from)) {
      const text = format.format(new Date(t.dateTime)) + (utc ? " UTC" : "");
      if ("exact" in t.dataset) t.textContent = text; else t.title = text + (utc ? "" : " " + name);
    }
    if (zone) { zone.hidden = false; zone.textContent = "Times: " + name; }
  }
  zone?.addEventListener("click", () => {
    remember("tusk-zone", remembered("tusk-zone") === "utc" ? "local" : "utc");
    showTimes();
  });
  showTimes();

  // On phones a row of a table is a card, whose cells say the name of their column.
  function label(from = document) {
    for (const table of all("table", from)) {
      const heads = all("thead th", table).map((th) => $(".sr", th) ? "" : th.textContent.trim());
      const rows = all("tbody tr", table).map((row) => [...row.cells]);
      if (!heads.length || rows.some((cells) => cells.length !== heads.length)) continue;
      for (const cells of rows) cells.forEach((cell, i) => { cell.dataset.label = heads[i]; });
      table.classList.add("cards");
    }
  }
  label();

  // A page of something that goes on: the page is fetched again, and what differs is taken over.
  const main = $("main");
  function take(old, fresh) {
    if (old.nodeType === Node.ELEMENT_NODE && old.hasAttribute("data-keep")) return;
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
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
      label(fresh);
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
    // A browser connects again by itself, unless the answer was an error.
    source.onerror = ({ target }) => {
      if (target !== source || target.readyState !== EventSource.CLOSED) return;
      source = null;
      setTimeout(listen, 5000);
    };
    source.addEventListener("end", () => { source.close(); source = null; watched = undefined; renew(); });
  }
  if ((cells.size > 0 || watched) && button) button.parentElement.hidden = false;
  button?.addEventListener("click", () => {
    remember("tusk-live", remembered("tusk-live") === "off" ? "on" : "off");
    listen();
  });
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => source?.close());
  listen();

  // The list has an operation that is under way: look again.
  setInterval(() => {
    if ($("[data-running]") && !document.hidden && remembered("tusk-live") !== "off") renew();
  }, 2000);

  // The chart. Failed attempts are at the foot of the bar of all; the numbers of a time show at the
  // pointer, or with the arrow keys.
  const box = $("[data-chart]"), tip = $("#tip");
  let chart = null, drawn = null;
  const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const took = (s) => s === 0 ? "0 s"
    : s < 0.001 ? `${Math.round(s * 1e6)} µs`
    : s < 1 ? `${Math.round(s * 1e3)} ms`
    : s < 60 ? `${s.toFixed(1)} s`
    : s < 3600 ? `${Math.round(s / 60)} min`
    : `${(s / 3600).toFixed(1)} h`;
  function clock(d) {
    const utc = remembered("tusk-zone") === "utc" ? { timeZone: "UTC" } : {};
    const format = new Intl.DateTimeFormat("sv-SE", {
      ...utc, ...(d.range === "30d" ? { month: "2-digit", day: "2-digit" } : { hour: "2-digit", minute: "2-digit" })
    });
    return (t) => format.format(new Date(t * 1000));
  }
  function tell(u) {
    const i = u.cursor.idx, d = drawn;
    tip.hidden = i == null || u.cursor.left < 0 || d.t[i] === undefined;
    if (tip.hidden) return;
    const numbers = d.view === "durations" ? `waited ${took(d.wait[i])}, ran ${took(d.ran[i])} (p95)`
      : `${number(d.done[i])} completed, ${number(d.fails[i])} failed`;
    const text = `${clock(d)(d.t[i])} · ${numbers}`;
    if (tip.textContent !== text) tip.textContent = text;
    const left = Math.min(
      Math.max(u.cursor.left + u.over.offsetLeft - tip.offsetWidth / 2, 0), box.clientWidth - tip.offsetWidth);
    tip.style.transform = `translateX(${Math.round(left)}px)`;
  }
  function draw(d) {
    const color = (name) => {
      const probe = document.createElement("i");
      probe.style.color = `var(--${name})`;
      box.append(probe);
      const value = getComputedStyle(probe).color;
      probe.remove();
      return value;
    };
    const times = d.view === "durations";
    const paths = times ? undefined : uPlot.paths.bars({ size: [0.8, 28] });
    const ink = color("dim"), grid = { stroke: color("line"), width: 1 };
    const one = (label, name) => times ? { label, stroke: color(name), width: 2, points: { show: false } }
      : { label, fill: color(name), stroke: color(name), width: 0, paths, points: { show: false } };
    const [first, second] = times ? [one("waited", "blue"), one("ran", "accent")]
      : [one("completed", "accent"), one("failed", "bad")];
    const at = chart?.cursor.left ?? -1;
    drawn = d;
    chart?.destroy();
    chart = new uPlot({
      width: box.clientWidth, height: 200, legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } }, hooks: { setCursor: [tell] },
      scales: {
        x: { range: (_, low, high) => {
          const half = d.t.length > 1 ? (d.t[1] - d.t[0]) / 2 : 30;
          return [low - half, high + half];
        } },
        y: { range: (_, low, high) => [0, Math.max(high * 1.1, times ? 0.001 : 5)] }
      },
      axes: [
        { stroke: ink, grid: { show: false }, ticks: grid, size: 32, values: (_, v) => v.map(clock(d)) },
        { stroke: ink, grid, ticks: { show: false }, size: 60,
          values: (_, v) => v.map((n) => times ? took(n) : n % 1 ? "" : number(n)) }
      ],
      series: [{}, first, second],
    }, times ? [d.t, d.wait, d.ran] : [d.t, d.done.map((n, i) => n + d.fails[i]), d.fails], box);
    if (at >= 0) chart.setCursor({ left: at, top: 10 });
  }
  async function redraw() {
    if (document.hidden || remembered("tusk-live") === "off" && chart) return;
    const answer = await fetch(`${prefix}/series.json?${box.dataset.chart}`).catch(() => null);
    if (!answer?.ok) return;
    const d = await answer.json();
    draw(d);
    for (const [name, text] of [
      ["done", number(d.completed)], ["fails", number(d.failed)], ["wait", d.wait_p95], ["ran", d.ran_p95]
    ]) {
      const sum = $("#sum-" + name);
      if (sum) sum.textContent = text;
    }
  }
  if (box && window.uPlot) {
    redraw();
    setInterval(redraw, 10000);
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (box.clientWidth !== width) {
        width = box.clientWidth;
        chart?.setSize({ width, height: 200 });
      }
    }).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    box.tabIndex = 0;
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || !chart) return;
      const i = Math.min(
        Math.max((chart.cursor.left < 0 ? drawn.t.length : chart.cursor.idx ?? drawn.t.length) + by, 0),
        drawn.t.length - 1);
      chart.setCursor({ left: chart.valToPos(drawn.t[i], "x"), top: 10 });
      event.preventDefault();
    });
    box.addEventListener("blur", () => chart?.setCursor({ left: -10, top: -10 }));
  }

  // Search at Ctrl-K: pages by their names in the navigation, all else by the page of the search.
  let palette = null;
  function openPalette() {
    if (!$("#find")) return; // nobody is logged in
    palette ??= makePalette();
    if (palette.open) return;
    palette.showModal();
    const input = $("input", palette);
    input.select();
    input.dispatchEvent(new Event("input"));
  }
  function makePalette() {
    const make = (name, set, ...children) => {
      const e = Object.assign(document.createElement(name), set);
      e.append(...children);
      return e;
    };
    const input = make("input", {
      type: "search", autocomplete: "off", placeholder: "A page, queue, kind, schedule, worker, key, or part of an id"
    });
    input.setAttribute("aria-label", "Search everything");
    const list = make("ul", { className: "found" }), said = make("p", { className: "dim", role: "status" });
    const dialog = make("dialog", { id: "palette" }, input, list, said);
    dialog.setAttribute("aria-label", "Search");
    let wanted = "", timer = 0;
    const pagesOf = (text) => all(".side nav a[data-go]")
      .filter((a) => text && a.textContent.toLowerCase().includes(text.toLowerCase()))
      .map((a) => make("li", {}, make("a", { href: a.href },
        make("span", { className: "what", textContent: "Page" }), " ", a.firstChild.textContent.trim())));
    const show = (text, items) => {
      list.replaceChildren(...items);
      said.textContent = !text ? "" : items.length ? `${items.length} found` : "Nothing found";
    };
    function ask(text) {
      const request = new XMLHttpRequest();
      request.open("GET", `${prefix}/find?q=${encodeURIComponent(text)}`);
      request.responseType = "document";
      request.onload = () => {
        if (text === wanted && request.status === 200 && request.responseXML)
          show(text, [...pagesOf(text),
            ...all("#found li", request.responseXML).map((li) => document.importNode(li, true))]);
      };
      request.send();
    }
    input.addEventListener("input", () => {
      wanted = input.value.trim();
      const pages = pagesOf(wanted);
      list.replaceChildren(...pages);
      said.textContent = "";
      clearTimeout(timer);
      if (wanted) timer = setTimeout(ask, 120, wanted);
    });
    dialog.addEventListener("keydown", (event) => {
      const links = all("a", list), on = links.indexOf(document.activeElement);
      if (event.key === "Enter" && event.target === input) links[0]?.click();
      else if (event.key === "ArrowDown") links[Math.min(on + 1, links.length - 1)]?.focus();
      else if (event.key === "ArrowUp") (on > 0 ? links[on - 1] : input).focus();
      else return;
      event.preventDefault();
    });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    return dialog;
  }
  $("#find")?.addEventListener("click", (event) => { event.preventDefault(); openPalette(); });

  // Selecting rows.
  const boxes = () => all("input[name=id]");
  function count() {
    const n = boxes().filter((b) => b.checked).length, every = $("#all"), selected = $("#selected");
    if (selected) selected.textContent = n ? `${n} selected` : "";
    if (every) {
      every.hidden = false;
      every.checked = n > 0 && n === boxes().length;
      every.indeterminate = n > 0 && n < boxes().length;
    }
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
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (palette?.open) return;
    if (event.ctrlKey || event.metaKey || event.altKey
      || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    if (prefixed) {
      prefixed = false;
      $(`[data-go="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    switch (event.key) {
      case "g": prefixed = true; setTimeout(() => { prefixed = false; }, 1500); return;
      case "/": {
        const search = $("#search");
        if (search) search.focus(); else openPalette();
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
