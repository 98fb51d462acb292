// What the page knows of its runs, and when it draws.
import { Chart, duration, el, millis, short, thinned } from "./charts.js";
import { drawCheckpoints, drawDevices, drawRanks, drawSettings, drawTiles, lossFirst, partColor, splitOf } from "./panels.js";

const $ = (id) => document.getElementById(id);
const MOST_RUNS = 8;
const MOST_STACKED = 240; // points of a chart of areas

const page = {
  names: [],       // all runs, the newest first
  shown: [],       // of them; the first is the one that ranks, devices and tiles are of
  runs: new Map(), // name -> { state, curves: Map(name -> points), ahead: of its clock before ours }
  charts: new Map(),
  axis: "step", smooth: 0.6, log: false,
  version: "",
  isLive: false,
};

// --- What comes in -----------------------------------------------------------------------------

function takeState(json) {
  let run = page.runs.get(json.run);
  if (!run || json.whole) {
    run = { state: {}, curves: new Map() };
    page.runs.set(json.run, run);
  }
  for (const [name, { from, points }] of Object.entries(json.curves)) {
    const known = (run.curves.get(name) ?? []).slice(0, from);
    run.curves.set(name, known.concat(points));
  }
  const settings = json.settings ?? run.state.settings;
  run.ahead = json.now - Date.now() / 1000;
  run.state = { ...json, settings };
}

let source = null;
function follow() {
  source?.close();
  if (!page.shown.length) return;
  source = new EventSource("events?runs=" + page.shown.map(encodeURIComponent).join(","));
  source.onmessage = (event) => {
    page.isLive = true;
    takeState(JSON.parse(event.data));
    draw();
  };
  source.onerror = () => {
    page.isLive = false;
    draw();
  };
}

async function loadNames() {
  const answer = await fetch("api/runs");
  if (!answer.ok) throw new Error(await answer.text());
  const json = await answer.json();
  page.names = json.runs;
  page.version = json.version;
  return json.first;
}

// --- Runs side by side -------------------------------------------------------------------------

const runColor = (index) => `var(--run-${index % MOST_RUNS})`;

function choose(names) {
  page.shown = names.slice(0, MOST_RUNS);
  history.replaceState(null, "", "#" + new URLSearchParams({ runs: page.shown.join(",") }));
  for (const name of [...page.runs.keys()]) if (!page.shown.includes(name)) page.runs.delete(name);
  drawRunList();
  follow();
  draw();
}

function drawRunList() {
  const find = $("runs-find").value.trim().toLowerCase();
  $("runs-label").textContent = page.shown.length > 1 ? `${page.shown.length} runs` : "Runs";
  $("runs-list").replaceChildren(...page.names.filter((name) => name.toLowerCase().includes(find)).map((name) => {
    const index = page.shown.indexOf(name);
    const box = el("input", { type: "checkbox", onchange: () => {
      const others = page.shown.filter((each) => each !== name);
      const next = box.checked ? [...page.shown, name] : others;
      if (!next.length || next.length > MOST_RUNS) { box.checked = !box.checked; return; }
      choose(next);
    } });
    box.checked = index >= 0;
    const swatch = el("span", { class: "swatch" });
    if (index >= 0) swatch.style.background = runColor(index);
    return el("label", { class: "run" }, box, swatch, name);
  }));
}

// --- Drawing -----------------------------------------------------------------------------------

let isDrawing = false;
function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    drawAll();
  });
}

function chartOf(parent, key, title) {
  let chart = page.charts.get(key);
  if (!chart) {
    chart = new Chart(title);
    page.charts.set(key, chart);
    // In the order of names, those of losses first.
    const place = (name) => String(lossFirst(name)) + name;
    const after = [...parent.children].find((node) => place(node.dataset.key) > place(key));
    chart.node.dataset.key = key;
    parent.insertBefore(chart.node, after ?? null);
  }
  return chart;
}

function dropCharts(prefix, kept) {
  for (const [key, chart] of page.charts) {
    if (!key.startsWith(prefix) || kept.has(key)) continue;
    chart.node.remove();
    page.charts.delete(key);
  }
}

function sayLatest(chart, lines, format) {
  const withPoints = lines.filter((line) => line.points.length);
  chart.latest.className = withPoints.length > 1 ? "latest many" : "latest";
  chart.latest.replaceChildren(...withPoints.map((line) => {
    const text = el("span", {}, format(line.points.at(-1)[2]));
    if (withPoints.length > 1) text.style.color = line.color;
    return text;
  }));
}

function linesOf(runs, key) {
  return runs.map(({ name, run }, index) => ({ name, color: runColor(index), points: run.curves.get(key) ?? [] })).filter((line) => line.points.length);
}

function drawValues(runs) {
  const keys = new Set(runs.flatMap(({ run }) => [...run.curves.keys()].filter((key) => key.startsWith("value:"))));
  for (const key of keys) {
    const chart = chartOf($("values"), key, key.slice(6));
    const lines = linesOf(runs, key);
    if (runs.length === 1) lines.forEach((line) => { line.name = key.slice(6); });
    chart.draw({ lines, axis: page.axis, smooth: page.smooth, log: page.log, hasSteps: true });
    sayLatest(chart, lines, short);
  }
  dropCharts("value:", keys);
  $("no-values").hidden = keys.size > 0;
}

// The parts of a step of the first run, on top of each other, at the points of the step time.
function stacksOf(run) {
  const total = thinned(run.curves.get("step_time") ?? [], MOST_STACKED);
  const parts = [...run.curves.keys()].filter((key) => key.startsWith("part:")).map((key) => [key.slice(5), new Map(thinned(run.curves.get(key), MOST_STACKED).map((point) => [point[0], point[2]]))]);
  const stacks = new Map();
  for (const point of total) {
    const values = Object.fromEntries(parts.map(([name, values]) => [name, values.get(point[0]) ?? 0]));
    for (const [name, value] of splitOf(values, point[2])) {
      if (!stacks.has(name)) stacks.set(name, []);
      stacks.get(name).push([point[0], point[1], value]);
    }
  }
  return [...stacks].map(([name, points]) => ({ name, color: partColor(name), points }));
}

function drawSteps(runs) {
  const [first] = runs;
  const hasSteps = runs.some(({ run }) => run.curves.has("step_time"));
  $("no-steps").hidden = hasSteps;
  $("steps").hidden = !hasSteps;
  if (!hasSteps) { $("legend").replaceChildren(); return; }
  const time = chartOf($("steps"), "steps:1", "Step time");
  if (runs.length === 1) {
    const stacks = stacksOf(first.run);
    const exchange = thinned(first.run.curves.get("part:exchange") ?? [], MOST_STACKED);
    const lines = exchange.length ? [{ name: "exchange of gradients", color: "var(--text)", dashed: true, points: exchange }] : [];
    time.draw({ stacks, lines, axis: page.axis, format: millis, axisFormat: millis, zero: true, hasSteps: true });
    $("legend").replaceChildren(...stacks.map((stack) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = stack.color;
      return el("li", {}, swatch, stack.name);
    }), ...lines.map((line) => el("li", {}, el("span", { class: "swatch line" }), line.name + ", beside the rest")));
  } else {
    time.draw({ lines: linesOf(runs, "step_time"), axis: page.axis, smooth: page.smooth, format: millis, axisFormat: millis, zero: true, hasSteps: true });
    $("legend").replaceChildren(...runs.map(({ name }, index) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = runColor(index);
      return el("li", {}, swatch, name);
    }));
  }
  sayLatest(time, linesOf(runs, "step_time"), millis);
  const samples = first.run.state.knows_samples;
  const rate = chartOf($("steps"), "steps:2", samples ? "Samples a second, all ranks" : "Steps a second");
  const lines = linesOf(runs, "throughput");
  rate.draw({ lines, axis: page.axis, smooth: page.smooth, zero: true, hasSteps: true });
  sayLatest(rate, lines, short);
}

function drawHead(first, now) {
  const { state } = first.run;
  const isRunning = state.state === "running" && !state.silent;
  const pill = $("run-state");
  const word = state.silent ? "silent" : state.state === "running" && !page.isLive ? "lost" : state.state;
  pill.className = `pill ${word}${isRunning ? " live" : ""}`;
  const said = { silent: "no sign of life", lost: "no connection" }[word] ?? word;
  const text = state.exit ? `failed, exit code ${state.exit}` : said;
  if (pill.textContent !== text) pill.textContent = text;
  $("run-name").textContent = state.run;
  const lasted = (isRunning ? now : state.heard) - state.began;
  $("run-line").textContent = [state.program, state.host, duration(lasted), page.shown.length > 1 ? `and ${page.shown.length - 1} beside it` : ""].filter(Boolean).join(" · ");
  document.title = `${state.run} · ${text}`;
  $("problems").replaceChildren(...state.problems.map((problem) => el("p", {}, problem)));
  const lost = state.ranks.reduce((sum, rank) => sum + rank.lost_events, 0);
  const ranks = state.ranks.length;
  $("ranks-note").textContent = [
    state.world > ranks ? `${state.world - ranks} of ${state.world} ranks have not been heard of` : "",
    lost ? `${lost} events were not recorded` : ""].filter(Boolean).join(" · ");
  $("foot").textContent = `accelerate ${page.version} · began ${new Date(state.began * 1000).toLocaleString()} · this page only shows: nothing can be changed through it`;
}

function drawAll() {
  const runs = page.shown.map((name) => ({ name, run: page.runs.get(name) })).filter(({ run }) => run);
  if (!runs.length || document.hidden) return;
  const [first] = runs;
  const clock = Date.now() / 1000 + first.run.ahead;
  const now = first.run.state.state === "running" && !first.run.state.silent ? clock : first.run.state.heard;
  drawHead(first, now);
  drawTiles($("tiles"), first.run.state, first.run.curves);
  drawValues(runs);
  drawSteps(runs);
  drawRanks($("ranks"), first.run.state, now);
  $("no-devices").hidden = first.run.state.devices.length > 0;
  drawDevices($("devices"), first.run.state, first.run.curves);
  $("no-checkpoints").hidden = first.run.state.checkpoints.length > 0;
  drawCheckpoints($("checkpoints"), first.run.state);
  const states = runs.map(({ run }) => run.state);
  drawSettings($("settings"), states, { find: $("settings-find").value, all: $("settings-all").checked });
  $("no-settings").hidden = states.some((state) => state.settings?.length);
  document.body.dataset.ready = "true";
}

// --- Controls ----------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

const darkness = matchMedia("(prefers-color-scheme: dark)");
const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
darkness.addEventListener("change", () => { if (!kept()) setTheme(darkness.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  setTheme(next);
  try { localStorage.setItem("theme", next); } catch { /* a private window forgets */ }
});
$("smooth").addEventListener("input", (event) => { page.smooth = Number(event.target.value); draw(); });
$("log").addEventListener("change", (event) => { page.log = event.target.checked; draw(); });
for (const radio of document.querySelectorAll("input[name=axis]")) radio.addEventListener("change", () => { page.axis = radio.value; draw(); });
$("settings-find").addEventListener("input", draw);
$("settings-all").addEventListener("change", draw);
$("runs-find").addEventListener("input", drawRunList);
$("runs").addEventListener("toggle", async () => {
  if (!$("runs").open) return;
  try { await loadNames(); drawRunList(); } catch { /* told by the state of the connection */ }
});
document.addEventListener("click", (event) => { if (!$("runs").contains(event.target)) $("runs").open = false; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && $("runs").open) { $("runs").open = false; $("runs").firstElementChild.focus(); } });
document.addEventListener("redraw", draw);
document.addEventListener("visibilitychange", draw);

const first = await loadNames().catch((error) => {
  $("run-line").textContent = error.message;
  return "";
});
const asked = (new URLSearchParams(location.hash.slice(1)).get("runs") ?? "").split(",").filter((name) => page.names.includes(name));
choose(asked.length ? asked : first ? [first] : []);
setInterval(() => { if (page.isLive) draw(); }, 1000);
