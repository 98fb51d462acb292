// Curves, drawn as SVG. A chart is a figure with a caption; pointer, touch and the arrow keys move a
// line over it that says what stands there, and screen readers hear a summary.

const SVG = "http://www.w3.org/2000/svg";
const FEW_POINTS = 60; // show themselves: a mean of so few would mislead

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function svg(name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// --- Numbers for people ------------------------------------------------------------------------

export function short(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + " G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return Math.round(value).toLocaleString("en-US").replaceAll(",", " ");
  if (size < 1e-3) return Number(value.toPrecision(3)).toExponential().replace("e-", "e−");
  return String(Number(value.toPrecision(digits)));
}

export function bytes(value) {
  if (!value) return "–";
  if (value >= 1e12) return (value / 1e12).toFixed(1) + " TB";
  if (value >= 1e9) return (value / 1e9).toFixed(value < 1e10 ? 2 : 1) + " GB";
  return Math.round(value / 1e6) + " MB";
}

export function millis(value) {
  if (value === 0) return "0";
  if (!value) return "–";
  if (value >= 1000) return short(value / 1000, 3) + " s";
  return short(value, 3) + " ms";
}

export function duration(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 10) return seconds.toFixed(1) + " s";
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return whole + " s";
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function clock(seconds) {
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return whole + " s";
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)}`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)} h`;
}

// --- Scales ------------------------------------------------------------------------------------

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const part = rough / power;
  return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

// Seconds go by minutes and hours.
function timeStep(span, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  return steps.find((step) => span / step <= count) ?? niceStep(span, count);
}

function ticksOf(low, high, count, step = niceStep) {
  if (!(high > low)) return [low];
  const size = step(high - low, count);
  const ticks = [];
  for (let tick = Math.ceil(low / size - 1e-9) * size; tick <= high + size * 1e-9; tick += size) ticks.push(Math.abs(tick) < size * 1e-9 ? 0 : tick);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    for (const digit of high / low < 100 ? [1, 2, 5] : [1]) {
      const tick = digit * Math.pow(10, power);
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : [low, high];
}

// A running mean that begins without a bias, as TensorBoard's does.
function smoothed(points, weight) {
  if (weight <= 0) return points.map((point) => point[2]);
  let mean = 0;
  let known = 0;
  return points.map((point) => {
    if (point[2] === null || !Number.isFinite(point[2])) return null;
    mean = mean * weight + (1 - weight) * point[2];
    known = known * weight + (1 - weight);
    return mean / known;
  });
}

// At most `most` points: means of those that lie beside each other.
export function thinned(points, most) {
  if (points.length <= most) return points;
  const bins = [];
  for (let bin = 0; bin < most; ++bin) {
    const part = points.slice(Math.floor(bin * points.length / most), Math.floor((bin + 1) * points.length / most));
    const values = part.map((point) => point[2]).filter((value) => value !== null);
    const last = part[part.length - 1];
    bins.push([last[0], last[1], values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null]);
  }
  return bins;
}

const tip = el("div", { class: "tip", hidden: true, role: "presentation" });
document.body.append(tip);

// `title` names the chart. draw() takes what it shows:
//   lines   [{ name, color, points: [[step, seconds, value, least, most]], dashed, latest }]
//   stacks  the same, put on top of each other
//   axis    "step" or "time"; smooth, log; format: a value as text; zero: the axis begins at 0
export class Chart {
  constructor(title) {
    this.latest = el("span", { class: "latest" });
    this.drawing = svg("svg", { role: "img", tabindex: "0" });
    this.node = el("figure", { class: "card chart" }, el("figcaption", {}, el("h3", {}, title), this.latest), this.drawing);
    this.title = title;
    this.at = null;
    this.width = 0;
    new ResizeObserver(() => this.redraw()).observe(this.node);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerdown", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.leave());
    this.drawing.addEventListener("blur", () => this.leave());
    this.drawing.addEventListener("keydown", (event) => this.key(event));
  }

  draw(what) {
    this.what = what;
    this.redraw();
  }

  redraw() {
    if (!this.what || !this.drawing.clientWidth || this.isHidden) return;
    const { what } = this;
    const width = this.drawing.clientWidth;
    const height = this.drawing.clientHeight;
    const x = what.axis === "time" ? 1 : 0;
    const lines = what.lines ?? [];
    const stacks = what.stacks ?? [];
    const all = [...lines, ...stacks];
    const isSmooth = (line) => (what.smooth ?? 0) > 0 && !line.dashed && line.points.length > FEW_POINTS;
    const curves = lines.map((line) => smoothed(line.points, isSmooth(line) ? what.smooth : 0));
    const tops = this.stackTops(stacks);
    let lowX = Infinity, highX = -Infinity, low = Infinity, high = -Infinity;
    for (const { points } of all) {
      if (!points.length) continue;
      lowX = Math.min(lowX, points[0][x]);
      highX = Math.max(highX, points[points.length - 1][x]);
    }
    const take = (value) => {
      if (value === null || !Number.isFinite(value) || (what.log && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    lines.forEach((line, index) => {
      // One wild value must not flatten the rest: what was smoothed counts, and most of the others.
      const values = line.points.map((point) => point[2]).filter((value) => value !== null && Number.isFinite(value));
      curves[index].forEach(take);
      values.sort((a, b) => a - b);
      if (values.length) { take(values[Math.floor(values.length * 0.01)]); take(values[Math.ceil(values.length * 0.99) - 1]); }
    });
    if (tops.length) { tops[tops.length - 1].forEach(take); low = 0; }
    if (!Number.isFinite(low)) return;
    if (what.zero) low = Math.min(low, 0);
    if (what.most !== undefined) high = what.most;
    if (high === low) { const pad = Math.abs(high) * 0.1 || 1; high += pad; if (!what.zero) low -= what.log ? low / 2 : pad; }
    else if (!what.log && what.most === undefined) { const pad = (high - low) * 0.06; high += pad; if (low !== 0) low -= pad; }
    if (highX === lowX) highX = lowX + 1;

    const ticksY = what.log ? logTicks(low, high) : ticksOf(low, high, Math.max(2, Math.floor(height / 40)));
    const format = what.format ?? short;
    const labels = ticksY.map((tick) => what.axisFormat ? what.axisFormat(tick) : short(tick, 3));
    const left = Math.max(...labels.map((label) => label.length)) * 6.7 + 8;
    const box = { left, right: width - 8, top: 10, bottom: height - 24 };
    const toX = (value) => box.left + (value - lowX) / (highX - lowX) * (box.right - box.left);
    const scale = what.log ? (value) => Math.log(Math.max(value, 1e-300)) : (value) => value;
    const toY = (value) => box.bottom - (scale(value) - scale(low)) / (scale(high) - scale(low)) * (box.bottom - box.top);
    this.view = { toX, toY, box, x, lowX, highX, all, curves, lines, stacks, format };

    const parts = [];
    ticksY.forEach((tick, index) => {
      const y = Math.round(toY(tick));
      parts.push(`<line class="grid" x1="${box.left}" x2="${box.right}" y1="${y}" y2="${y}"/>`);
      parts.push(`<text x="${box.left - 7}" y="${y + 4}" text-anchor="end">${labels[index]}</text>`);
    });
    const countX = Math.max(2, Math.floor(width / 72));
    for (const tick of ticksOf(lowX, highX, countX, x ? timeStep : niceStep)) {
      const at = toX(tick);
      const anchor = at > box.right - 24 ? "end" : at < box.left + 12 ? "start" : "middle";
      parts.push(`<text x="${at}" y="${height - 6}" text-anchor="${anchor}">${x ? clock(tick) : short(tick, 6)}</text>`);
    }
    stacks.forEach((stack, index) => {
      const upper = [], lower = [];
      stack.points.forEach((point, i) => {
        upper.push(`${toX(point[x]).toFixed(1)},${toY(tops[index][i]).toFixed(1)}`);
        lower.push(`${toX(point[x]).toFixed(1)},${toY(index ? tops[index - 1][i] : 0).toFixed(1)}`);
      });
      if (upper.length === 1) { upper.push(`${box.right},${upper[0].split(",")[1]}`); lower.push(`${box.right},${lower[0].split(",")[1]}`); }
      parts.push(`<polygon points="${upper.join(" ")} ${lower.reverse().join(" ")}" fill="${stack.color}" opacity=".88"/>`);
    });
    const clip = (y) => Math.min(Math.max(y, box.top - 6), box.bottom + 2);
    const path = (line, values) => {
      let text = "", pen = "M";
      line.points.forEach((point, i) => {
        const value = values[i];
        if (value === null || value === undefined || !Number.isFinite(value) || (what.log && value <= 0)) { pen = "M"; return; }
        text += `${pen}${toX(point[x]).toFixed(1)} ${clip(toY(value)).toFixed(1)}`;
        pen = "L";
      });
      return text;
    };
    lines.forEach((line, index) => {
      if (isSmooth(line)) parts.push(`<path class="raw" d="${path(line, line.points.map((point) => point[2]))}" stroke="${line.color}"/>`);
      parts.push(`<path class="curve${line.dashed ? " dashed" : ""}" d="${path(line, curves[index])}" stroke="${line.color}"/>`);
      if (line.points.length === 1 && line.points[0][2] !== null) parts.push(`<circle cx="${toX(line.points[0][x])}" cy="${toY(line.points[0][2])}" r="3" fill="${line.color}"/>`);
    });
    parts.push(`<g class="marks"></g>`);
    // What stands in it are numbers and colours of ours: names of values only go where they are text.
    this.drawing.innerHTML = parts.join("");
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.describe(format);
    if (this.at !== null) this.mark();
  }

  stackTops(stacks) {
    const tops = [];
    stacks.forEach((stack, index) => tops.push(stack.points.map((point, i) => (index ? tops[index - 1][i] ?? 0 : 0) + (point[2] ?? 0))));
    return tops;
  }

  describe(format) {
    const words = this.view.all.filter((line) => line.points.length).map((line) => {
      const values = line.points.map((point) => point[2]).filter((value) => value !== null);
      const latest = values[values.length - 1];
      return `${line.name}: ${format(latest)}, from ${format(Math.min(...values))} to ${format(Math.max(...values))}`;
    });
    this.drawing.setAttribute("aria-label", `${this.title}. ${words.join(". ")}. Arrow keys read single points.`);
  }

  nearest(points, value) {
    const { x } = this.view;
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][x] < value) low = middle + 1; else high = middle;
    }
    if (low > 0 && Math.abs(points[low - 1][x] - value) < Math.abs(points[low][x] - value)) --low;
    return low;
  }

  point(event) {
    if (!this.view) return;
    const frame = this.drawing.getBoundingClientRect();
    const { box, lowX, highX } = this.view;
    const part = (event.clientX - frame.left - box.left) / (box.right - box.left);
    this.at = lowX + Math.min(1, Math.max(0, part)) * (highX - lowX);
    this.mark(event.clientY - frame.top);
  }

  key(event) {
    const longest = this.view?.all.reduce((best, line) => line.points.length > best.length ? line.points : best, []);
    if (!longest?.length) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 };
    if (event.key === "Escape") { this.leave(); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const move = moves[event.key];
    const from = this.at !== null ? this.nearest(longest, this.at) : move > 0 ? -1 : longest.length;
    this.at = longest[Math.min(longest.length - 1, Math.max(0, from + move))][this.view.x];
    this.mark();
  }

  mark(atY) {
    const { toX, toY, box, x, all, curves, lines, format } = this.view;
    const marks = this.drawing.querySelector(".marks");
    if (!marks) return;
    const rows = [];
    let text = "", place = null;
    all.forEach((line) => {
      if (!line.points.length) return;
      const index = this.nearest(line.points, this.at);
      const point = line.points[index];
      place = place ?? point;
      const number = lines.indexOf(line);
      const shown = number >= 0 ? curves[number][index] : null;
      if (shown !== null && Number.isFinite(shown)) text += `<circle cx="${toX(point[x])}" cy="${toY(shown)}" r="3.5" fill="${line.color}"/>`;
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = line.color;
      rows.push(el("div", {}, swatch, line.name, el("b", {}, format(point[2]))));
    });
    if (!place) return;
    const at = toX(place[x]);
    marks.innerHTML = `<line class="cross" x1="${at}" x2="${at}" y1="${box.top}" y2="${box.bottom}"/>${text}`;
    tip.replaceChildren(el("div", {}, this.what.axis === "time" || !this.what.hasSteps ? clock(place[1]) : `step ${short(place[0], 9)} · ${clock(place[1])}`), ...rows);
    tip.hidden = false;
    const frame = this.drawing.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const leftOf = frame.left + at + 14 + size.width > innerWidth - 8;
    tip.style.left = Math.max(8, leftOf ? frame.left + at - 14 - size.width : frame.left + at + 14) + "px";
    tip.style.top = Math.min(innerHeight - size.height - 8, frame.top + (atY ?? box.top + 12)) + "px";
    this.drawing.setAttribute("aria-label", tip.innerText.replaceAll("\n", " "));
  }

  leave() {
    this.at = null;
    tip.hidden = true;
    this.drawing.querySelector(".marks")?.replaceChildren();
    if (this.view) this.describe(this.view.format);
  }
}

// A small curve without axes, of values from 0 to `most`.
export function spark(drawing, curves, most) {
  const width = drawing.clientWidth || 280, height = 42;
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.innerHTML = curves.map(({ points, color, fill }) => {
    if (points.length < 2) return "";
    const first = points[0][1], last = points[points.length - 1][1];
    const text = points.map((point) => `${((point[1] - first) / (last - first || 1) * width).toFixed(1)},${(height - 1 - Math.min(1, (point[2] ?? 0) / (most || 1)) * (height - 3)).toFixed(1)}`).join(" ");
    const area = fill ? `<polygon points="0,${height} ${text} ${width},${height}" fill="${color}" opacity=".16"/>` : "";
    return `${area}<polyline points="${text}" fill="none" stroke="${color}" stroke-width="1.5" vector-effect="non-scaling-stroke"/>`;
  }).join("");
}
