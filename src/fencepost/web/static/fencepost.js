// Makes the pages live, and adds keys. Everything works without it. No code of others, nothing evaluated.
"use strict";
(() => {
  const root = document.body.dataset.root || "";
  const live = document.querySelector("#live[data-live]");
  const note = document.getElementById("live-state");
  const policy = window.trustedTypes
    ? trustedTypes.createPolicy("fencepost", { createHTML: (text) => text })
    : { createHTML: (text) => text };

  // -- live: a hint says that something has changed; the page then fetches its own part ---------------------------------
  let stream = null, isFetching = false, isStale = false, isPaused = false;

  function say(text, title) {
    if (!note) return;
    note.hidden = !text;
    note.textContent = text;
    note.title = title || "";
  }

  function isTyping() {
    const at = document.activeElement;
    return at && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) && at.type !== "checkbox";
  }

  // The focus is found again by the element's id, its address, or its place among those that can have it.
  function focusable() {
    return [...live.querySelectorAll("a[href], button, summary, input, select, textarea")];
  }
  function remembered() {
    const at = document.activeElement;
    if (!at || !live.contains(at)) return null;
    return { id: at.id, href: at.getAttribute("href"), place: focusable().indexOf(at) };
  }
  function restore(seen) {
    if (!seen) return;
    const all = focusable();
    const found = (seen.id && document.getElementById(seen.id))
      || (seen.href && all.find((each) => each.getAttribute("href") === seen.href)) || all[seen.place];
    if (found) found.focus({ preventScroll: true });
  }
  function opened() {
    return new Set([...live.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
  }

  function isInUse() {
    return isTyping() || hasTyped() || hasSelected();
  }
  function hold() {
    isStale = true;
    say("held", "changes are shown when you have finished typing, and no text is selected");
  }

  async function refresh() {
    if (!live || isPaused) return;
    if (isFetching) { isStale = true; return; }
    if (isInUse()) { hold(); return; }
    isFetching = true;
    isStale = false;
    try {
      const answer = await fetch(location.href, { headers: { "Fencepost-Fragment": "1" }, redirect: "manual", cache: "no-store" });
      if (answer.type === "opaqueredirect" || answer.status === 401) { location.reload(); return; }
      if (!answer.ok) { say("not up to date", "the server answered " + answer.status); return; }
      const text = await answer.text();
      const parsed = new DOMParser().parseFromString(policy.createHTML("<!doctype html><body>" + text), "text/html");
      if (isInUse()) { hold(); return; }  // since it was asked for
      replace(parsed.body);
      say("live", "last change shown at " + new Date().toLocaleTimeString());
    } catch {
      say("not up to date", "the server does not answer");
    } finally {
      isFetching = false;
      if (isStale) refresh();  // a hint that came meanwhile
    }
  }

  function hasSelected() {
    const selection = getSelection();
    return !selection.isCollapsed && selection.rangeCount > 0 && live.contains(selection.getRangeAt(0).commonAncestorContainer);
  }

  function hasTyped() {
    return [...live.querySelectorAll("form[method=post] input[type=text], form[method=post] textarea")].some((each) => each.value !== each.defaultValue);
  }

  // What can be done stands outside the part that is replaced. It is drawn anew when the state is another one, unless somebody is at it.
  const drawnState = stateOf();
  function stateOf() {
    const line = live && live.querySelector("[data-state]");
    return line ? line.dataset.state : null;
  }
  function hasOtherActs() {
    const acts = document.getElementById("aside");
    return Boolean(acts) && stateOf() !== drawnState && !acts.contains(document.activeElement)
      && ![...acts.querySelectorAll("input[type=text]")].some((each) => each.value !== each.defaultValue);
  }

  function replace(fresh) {
    const seen = remembered(), open = opened(), rows = new Set([...live.querySelectorAll("[data-row][id]")].map((row) => row.id));
    const scroll = window.scrollY, log = live.querySelector("pre.log");
    const isAtEnd = log && log.scrollTop + log.clientHeight >= log.scrollHeight - 4, logAt = log ? log.scrollTop : 0;
    live.replaceChildren(...[...fresh.childNodes].map((node) => document.adoptNode(node)));
    live.querySelectorAll("details > summary").forEach((each) => { if (open.has(each.textContent)) each.parentElement.open = true; });
    if (rows.size) live.querySelectorAll("[data-row][id]").forEach((row) => { if (!rows.has(row.id)) row.classList.add("new-row"); });
    if (hasOtherActs()) { location.reload(); return; }
    const grown = live.querySelector("pre.log");
    if (grown) grown.scrollTop = isAtEnd || !log ? grown.scrollHeight : logAt;
    window.scrollTo({ top: scroll, behavior: "instant" });
    restore(seen);
  }

  function listen() {
    if (!live || stream || document.hidden || isPaused) return;
    stream = new EventSource(root + "/events");
    stream.addEventListener("open", () => say("live", "changes are shown as they happen"));
    if (!("calm" in live.dataset)) stream.addEventListener("changed", refresh);
    stream.addEventListener("ended", () => { hush(); location.reload(); });
    stream.addEventListener("error", () => say("reconnecting", "no connection to the server"));
  }
  function hush() {
    if (stream) stream.close();
    stream = null;
  }

  if (live) {
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { hush(); say("paused", "while the page is hidden"); } else { listen(); refresh(); }
    });
    live.addEventListener("focusout", () => setTimeout(() => { if (isStale) refresh(); }, 200));
    document.addEventListener("selectionchange", () => { if (isStale && getSelection().isCollapsed) refresh(); });
    window.addEventListener("pagehide", hush);
    listen();
    const every = Number(live.dataset.every) * 1000;  // all tabs at once: then the server draws it once
    const again = () => setTimeout(() => { if (!document.hidden) refresh(); again(); }, every - Date.now() % every);
    if (every) again();
  }

  // -- copying, the reader's own zone -----------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const line = event.target.closest("pre[data-copy]");
    if (line && navigator.clipboard && String(getSelection()) === "") {
      navigator.clipboard.writeText(line.textContent).then(() => { line.title = "copied"; say("copied"); }, () => {});
    }
  });
  const zones = document.getElementById("zones");
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zones && mine) {
    const option = document.createElement("option");
    option.value = mine;
    option.label = "mine";
    zones.prepend(option);
  }

  // -- keys ---------------------------------------------------------------------------------------------------------------
  const PLACES = { n: "/", r: "/runs", j: "/jobs", s: "/schedules", w: "/why", o: "/nodes", a: "/audit", x: "/access" };
  const HELP = [["g n", "Now"], ["g r", "Runs"], ["g j", "Jobs"], ["g s", "Schedules"], ["g w", "Why"], ["g o", "Nodes"],
    ["g a", "Audit"], ["/", "find"], ["j  k", "next and previous row"], ["Enter", "open the row"], [".", "act"], ["p", "pause live changes"], ["?", "this help"]];
  let isGoing = false;

  function move(step) {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))];
    const link = row && row.querySelector("a[href]");
    if (link) { link.focus(); row.scrollIntoView({ block: "nearest" }); }
  }
  function act() {
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const button = row && row.querySelector(".acts input[type=text], .acts button");
    if (button) { button.focus(); return; }
    const form = document.querySelector("details[data-act]");
    if (form) { form.open = true; form.scrollIntoView({ block: "nearest" }); (form.querySelector("input[type=text]") || form.querySelector("button")).focus(); return; }
    const link = document.querySelector("[data-act-link]");
    if (link) link.focus();
  }
  function help() {
    let dialog = document.getElementById("keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "keys";
      const list = document.createElement("dl");
      list.className = "facts";
      for (const [key, words] of HELP) {
        const term = document.createElement("dt"), text = document.createElement("dd"), cap = document.createElement("kbd");
        cap.textContent = key;
        term.append(cap);
        text.textContent = words;
        list.append(term, text);
      }
      dialog.append(list);
      document.body.append(dialog);
    }
    if (dialog.open) dialog.close(); else dialog.showModal();
  }
  function pause() {
    isPaused = !isPaused;
    if (isPaused) { hush(); say("paused", "p goes on"); } else { listen(); refresh(); }
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping()) { if (event.key === "Escape") document.activeElement.blur(); return; }
    if (isGoing) {
      isGoing = false;
      if (event.key in PLACES) { event.preventDefault(); location.href = root + PLACES[event.key]; }
      return;
    }
    const keys = {
      g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
      "/": () => { const box = document.getElementById("find"); if (box) { box.focus(); box.select(); } else location.href = root + "/runs"; },
      j: () => move(1), k: () => move(-1), ".": act, "?": help, p: () => { if (live) pause(); },
    };
    if (event.key in keys) { event.preventDefault(); keys[event.key](); }
  });
})();
