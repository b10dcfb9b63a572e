"use strict";
// Live updates of the list of events. Everything else works without this file.
(() => {
  const box = document.getElementById("stream");
  if (!box || !window.EventSource) return;
  const rows = () => document.getElementById("events");
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  const waiting = [];
  const most = 200;
  let source, paused = false, last = "";

  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const put = (html) => {
    if (!rows()) { location.reload(); return; } // the list was empty
    const t = document.createElement("template");
    t.innerHTML = "<table><tbody>" + html + "</tbody></table>"; // made and escaped by the server's template
    const row = t.content.querySelector("tr");
    row.classList.add("new");
    rows().prepend(row);
    while (rows().rows.length > most) rows().deleteRow(-1);
  };
  const show = () => { while (waiting.length) put(waiting.shift()); };
  const connect = () => {
    const url = new URL(box.dataset.events, location.href);
    if (last) url.searchParams.set("after", String(Number(last) + 1));
    source = new EventSource(url);
    source.addEventListener("open", () => say(paused ? "Paused." : "Live."));
    source.addEventListener("leaf", (e) => {
      last = e.lastEventId;
      if (!paused) { put(e.data); return; }
      waiting.push(e.data);
      if (waiting.length > most) waiting.shift();
      say("Paused; " + waiting.length + " newer.");
    });
    source.addEventListener("missed", (e) => {
      last = e.lastEventId;
      say(e.data + " events happened meanwhile. Reload to see them.");
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) say("The inspector has ended.");
      else say("The connection was lost; it is tried again.");
    });
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Continue" : "Pause";
    if (!paused) show();
    say(paused ? "Paused." : "Live.");
  });
  connect();
})();
