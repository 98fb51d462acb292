// The parts of the page below the curves: tiles, ranks, devices, checkpoints, configuration. Each
// keeps its elements and changes what they say, so that focus, scrolling and what is open stay.
import { bytes, duration, el, millis, short, spark, svg } from "./charts.js";

export const PART_ORDER = ["data", "forward", "forward and rest", "backward", "optimizer", "checkpoint", "profiler", "rest"];

export function partColor(name) {
  const known = { "data": "data", "forward": "forward", "forward and rest": "forward", "backward": "backward", "optimizer": "optimizer", "checkpoint": "checkpoint" };
  return `var(--part-${known[name] ?? "other"})`;
}

// The parts of a step in milliseconds, with what none of them accounts for. What runs beside the
// others, the exchange of gradients, is none of them.
export function splitOf(parts, total) {
  const split = Object.entries(parts).filter(([name]) => name !== "exchange");
  const rest = Math.max(0, total - split.reduce((sum, [, value]) => sum + (value ?? 0), 0));
  split.push(["forward" in parts ? "rest" : "forward and rest", rest]);  // older records have no forward passes
  const place = (name) => (PART_ORDER.indexOf(name) + PART_ORDER.length + 1) % (PART_ORDER.length + 1);
  return split.sort((one, other) => place(one[0]) - place(other[0]));
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Elements by key, in the order of `items`; make() one that is new, update() all.
function keyed(parent, items, keyOf, make, update) {
  parent.kept = parent.kept ?? new Map();
  const before = parent.kept;
  parent.kept = new Map();
  items.forEach((item, index) => {
    const key = keyOf(item);
    const node = before.get(key) ?? make(item);
    before.delete(key);
    parent.kept.set(key, node);
    update(node, item);
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
  for (const node of before.values()) node.remove();
}

// --- At a glance -------------------------------------------------------------------------------

export function drawTiles(parent, run, curves) {
  const last = (name) => curves.get(name)?.at(-1);
  const ranks = run.ranks;
  const first = ranks[0];
  const tiles = [];
  const loss = [...curves.keys()].filter((name) => name.startsWith("value:")).sort((one, other) => lossFirst(one) - lossFirst(other))[0];
  if (loss) {
    const points = curves.get(loss);
    const values = points.map((point) => point[3] ?? point[2]).filter((value) => value !== null);
    tiles.push([loss.slice(6), short(points.at(-1)[2]), "", `lowest ${short(Math.min(...values))}`]);
  }
  if (first) tiles.push(["Step", (last(loss)?.[0] ?? last("step_time")?.[0] ?? first.steps).toLocaleString("en-US").replaceAll(",", " "), "", run.restarts ? `${run.restarts} ${run.restarts === 1 ? "restart" : "restarts"}` : ""]);
  if (last("step_time")) {
    const [number, unit] = millis(first?.step_ms ?? last("step_time")[2]).split(" ");
    tiles.push(["Step time", number, unit, slowest(ranks)]);
  }
  if (last("throughput")) tiles.push([run.knows_samples ? "Samples a second" : "Steps a second", short(last("throughput")[2], 4), "", run.knows_samples ? `all ${run.world || ranks.length} ranks` : ""]);
  const waiting = ranks.filter((rank) => rank.state === "waiting").length;
  const failed = ranks.filter((rank) => rank.state === "failed").length;
  if (ranks.length) tiles.push(["Ranks", String(ranks.length), run.world > ranks.length ? `of ${run.world}` : "", failed ? `${failed} failed` : waiting ? `${waiting} waiting for others` : ranks.every((rank) => rank.state === "done") ? "all done" : "none waits"]);
  const gpus = run.devices.filter((device) => device.kind === "gpu");
  const shown = gpus.length ? gpus : run.devices;
  if (shown.length) tiles.push([gpus.length ? "GPUs busy" : "Processors busy", Math.round(100 * shown.reduce((sum, device) => sum + device.busy, 0) / shown.length) + " %", "", `${bytes(shown.reduce((sum, device) => sum + device.used, 0))} in use`]);
  keyed(parent, tiles, (tile) => tile[0],
    () => el("div", { class: "tile" }, el("p", { class: "name" }), el("p", { class: "number" }, el("span"), " ", el("small")), el("p", { class: "more" })),
    (node, [name, number, unit, more]) => {
      setText(node.children[0], name);
      setText(node.children[1].children[0], number);
      setText(node.children[1].children[1], unit);
      setText(node.children[2], more);
    });
}

export function lossFirst(name) {
  const at = ["value:loss", "value:train_loss", "value:train/loss"].indexOf(name);
  return at >= 0 ? at : name.includes("loss") ? 5 : 9;
}

function slowest(ranks) {
  const timed = ranks.filter((rank) => rank.step_ms > 0);
  if (timed.length < 2) return "";
  const last = timed.reduce((one, other) => other.step_ms > one.step_ms ? other : one);
  return `slowest: rank ${last.rank}`;
}

// --- Ranks -------------------------------------------------------------------------------------

function doing(rank, now) {
  if (rank.ended) return rank.ended;
  const what = rank.activity || rank.operation;
  if (!what) return "";
  const lasts = duration(now - rank.since);
  const label = rank.state === "waiting" ? "waits in " : "in ";
  const inner = rank.operation && rank.operation !== rank.activity ? ` (${rank.operation})` : "";
  return [label, el("strong", { class: now - rank.since > 30 ? "bad" : "" }, what), `${rank.activity ? inner : ""} for ${lasts}`];
}

const openLines = new Set();

function makeRankRow(rank) {
  const cell = (name, extra = "") => el("td", { "data-name": name, class: extra });
  const row = el("tr", {}, cell("Rank"), cell("State"), cell("Step", "number"), cell("Step time", "number"), cell("Where it goes"), cell("Now", "doing"), cell("CPUs", "number"), cell("Memory", "number"), cell("Restarts", "number"), cell("Machine"), cell("", "plain number"));
  row.children[1].append(el("span", { class: "pill" }));
  row.children[4].append(el("div", { class: "split", role: "img" }));
  row.children[10].append(el("button", { type: "button", class: "open-lines", "aria-expanded": "false", onclick: () => {
    if (!openLines.delete(rank.rank)) openLines.add(rank.rank);
    document.dispatchEvent(new Event("redraw"));
  } }));
  return row;
}

function updateRankRow(row, rank, now) {
  const [number, state, step, time, split, busy, cpus, memory, restarts, host, lines] = row.children;
  setText(number, String(rank.rank));
  state.firstChild.className = `pill ${rank.state}`;
  setText(state.firstChild, rank.state);
  setText(step, rank.steps ? String(rank.steps) : "–");
  setText(time, millis(rank.step_ms));
  const parts = rank.step_ms ? splitOf(rank.parts, rank.step_ms) : [];
  split.firstChild.setAttribute("aria-label", parts.map(([name, value]) => `${name} ${millis(value)}`).join(", "));
  split.firstChild.title = parts.map(([name, value]) => `${name} ${millis(value)}`).join("\n");
  keyed(split.firstChild, parts, ([name]) => name, () => el("i"), (node, [name, value]) => {
    node.style.background = partColor(name);
    node.style.width = `${100 * value / rank.step_ms}%`;
  });
  const said = doing(rank, now);
  busy.replaceChildren(...(said ? [el("span", {}, ...(Array.isArray(said) ? said : [said]))] : []));
  setText(cpus, rank.processors ? rank.processors.toFixed(1) : "–");
  setText(memory, bytes(rank.memory));
  setText(restarts, String(rank.restarts));
  setText(host, rank.host);
  const isOpen = openLines.has(rank.rank);
  const button = lines.firstChild;
  button.hidden = rank.lines.length === 0;
  setText(button, isOpen ? "Hide lines" : "Last lines");
  button.setAttribute("aria-expanded", String(isOpen));
  button.setAttribute("aria-label", `${isOpen ? "Hide" : "Show"} the last lines of rank ${rank.rank}`);
  row.className = rank.state === "failed" ? "trouble" : "";
}

export function drawRanks(parent, run, now) {
  if (!run.ranks.length) {
    parent.replaceChildren(el("p", { class: "empty" }, "No rank has been heard of yet."));
    parent.body = null;
    return;
  }
  if (!parent.body) {
    const names = ["Rank", "State", "Step", "Step time", "Where it goes", "Now", "CPUs", "Memory", "Restarts", "Machine", ""];
    parent.body = el("tbody");
    const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: ["Step", "Step time", "CPUs", "Memory", "Restarts"].includes(name) ? "number" : "" }, name)));
    parent.replaceChildren(el("div", { class: "card scroll" }, el("table", { class: "cards" }, el("caption", { class: "unseen" }, "State of every rank"), el("thead", {}, head), parent.body)));
  }
  // A rank that failed shows its lines unasked, once.
  for (const rank of run.ranks) {
    if (rank.state === "failed" && !parent.told?.has(rank.rank)) {
      (parent.told = parent.told ?? new Set()).add(rank.rank);
      if (rank.lines.length) openLines.add(rank.rank);
    }
  }
  const rows = run.ranks.flatMap((rank) => openLines.has(rank.rank) && rank.lines.length ? [{ rank }, { rank, lines: true }] : [{ rank }]);
  keyed(parent.body, rows, (row) => `${row.rank.rank}${row.lines ? " lines" : ""}`,
    (row) => row.lines ? el("tr", { class: "lines-row" }, el("td", { colspan: "11", class: "plain" }, el("pre", { class: "lines", tabindex: "0", "aria-label": `Last lines of rank ${row.rank.rank}` }))) : makeRankRow(row.rank),
    (node, row) => row.lines ? setText(node.firstChild.firstChild, row.rank.lines.join("\n")) : updateRankRow(node, row.rank, now));
}

// --- Devices -----------------------------------------------------------------------------------

function meter(node, name, part, text, isTight = false) {
  setText(node.children[0], name);
  const fill = node.children[1].firstChild;
  fill.style.width = `${Math.min(100, 100 * part)}%`;
  fill.className = isTight ? "high" : "";
  setText(node.children[2], text);
}

export function drawDevices(parent, run, curves) {
  const makeMeter = () => el("div", { class: "meter" }, el("span"), el("div", { class: "track", "aria-hidden": "true" }, el("i")), el("b"));
  keyed(parent, run.devices.map((device, index) => ({ device, index })), ({ device }) => `${device.host} ${device.kind} ${device.index}`,
    () => {
      const drawing = svg("svg", { "aria-hidden": "true" });
      return el("article", { class: "card device" }, el("div", { class: "top" }, el("h3"), el("span")), makeMeter(), makeMeter(), drawing);
    },
    (node, { device, index }) => {
      const isGpu = device.kind === "gpu";
      setText(node.children[0].children[0], isGpu ? `GPU ${device.index} · ${device.name}` : `${device.host} · ${device.name}`);
      setText(node.children[0].children[1], isGpu ? [device.celsius ? `${Math.round(device.celsius)} °C` : "", device.watts ? `${Math.round(device.watts)} W` : ""].filter(Boolean).join(" · ") : "");
      meter(node.children[1], "Busy", device.busy, `${Math.round(device.busy * 100)} %`);
      meter(node.children[2], "Memory", device.memory ? device.used / device.memory : 0, `${bytes(device.used)} of ${bytes(device.memory)}`, device.used > 0.94 * device.memory);
      spark(node.children[3], [{ points: curves.get(`device:${index}:busy`) ?? [], color: "var(--accent)", fill: true }], 1);
    });
}

// --- Checkpoints -------------------------------------------------------------------------------

export function drawCheckpoints(parent, run) {
  const list = [...run.checkpoints].reverse();
  const several = new Set(list.map((each) => each.rank)).size > 1;
  if (!list.length) { parent.replaceChildren(); parent.body = null; return; }
  if (!parent.body) {
    parent.body = el("tbody");
    const names = ["After", "What", "Took", "Rank", "State"];
    parent.replaceChildren(el("div", { class: "card scroll" }, el("table", { class: "cards" }, el("caption", { class: "unseen" }, "Checkpoints, the newest first"), el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col", class: name === "Took" ? "number" : name === "What" ? "most" : "" }, name)))), parent.body)));
  }
  keyed(parent.body, several ? list : list, (each) => `${each.began} ${each.rank} ${each.what}`,
    () => el("tr", {}, el("td", { "data-name": "After" }), el("td", { "data-name": "What", class: "mono" }), el("td", { "data-name": "Took", class: "number" }), el("td", { "data-name": "Rank" }), el("td", { "data-name": "State" }, el("span", { class: "pill" }))),
    (row, each) => {
      setText(row.children[0], duration(each.began - run.began));
      setText(row.children[1], each.what);
      setText(row.children[2], each.open ? "–" : duration(each.seconds));
      setText(row.children[3], String(each.rank));
      row.children[4].firstChild.className = `pill ${each.failed ? "failed" : each.open ? "saving" : "done"}`;
      setText(row.children[4].firstChild, each.failed ? "failed" : each.open ? "under way" : "done");
    });
}

// --- Configuration -----------------------------------------------------------------------------

export function drawSettings(parent, shown, wanted) {
  const names = [...new Set(shown.flatMap((run) => (run.settings ?? []).map((setting) => setting.name)))];
  const find = wanted.find.trim().toLowerCase();
  const rows = names.map((name) => ({ name, values: shown.map((run) => (run.settings ?? []).find((setting) => setting.name === name)) }))
    .filter((row) => wanted.all || find || row.values.some((value) => value?.given))
    .filter((row) => !find || (row.name + row.values.map((value) => value ? value.value + value.source : "").join(" ")).toLowerCase().includes(find));
  const differs = (row) => shown.length > 1 && new Set(row.values.map((value) => value?.value)).size > 1;
  const key = JSON.stringify([rows, shown.map((run) => run.run)]);
  if (parent.key === key) return;
  parent.key = key;
  const head = shown.length > 1 ? ["Setting", ...shown.map((run) => run.run)] : ["Setting", "Value", "From"];
  const valueOf = (value) => value ? [value.value || "–"] : ["–"];
  const body = rows.map((row) => shown.length > 1
    ? el("tr", {}, el("td", { "data-name": "Setting", class: "mono" }, row.name, differs(row) ? " " : null, differs(row) ? el("span", { class: "badge" }, "differs") : null), ...row.values.map((value, index) => el("td", { "data-name": shown[index].run }, ...valueOf(value), value ? el("span", { class: "source" }, `  ${value.source}`) : null)))
    : el("tr", {}, el("td", { "data-name": "Setting", class: "mono" }, row.name), el("td", { "data-name": "Value" }, ...valueOf(row.values[0])), el("td", { "data-name": "From", class: "source" }, row.values[0]?.source ?? "")));
  parent.replaceChildren(rows.length
    ? el("div", { class: "card scroll" }, el("table", { class: "cards" }, el("caption", { class: "unseen" }, "Settings, their values and where they come from"), el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...body)))
    : names.length ? el("p", { class: "empty" }, "No setting is called so.") : "");
}
