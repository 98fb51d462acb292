// The page "Which lines change": composes the loop for what is ticked, marks the lines that differ, and says how it is started.
(() => {
  const form = document.getElementById("needs");
  const { options, lines } = window.loop;

  const holds = (conditions, chosen) =>
    conditions.every((names) => names.some((name) => (name[0] === "!" ? !chosen.has(name.slice(1)) : chosen.has(name))));
  const present = (chosen) => lines.filter(([, when]) => holds(when, chosen));

  // The text of a program, as the tests compose it: "before" or "after".
  window.composeLoop = (names, side) =>
    present(new Set(names)).filter(([of]) => of === side || of === "both").map(([, , code]) => code).join("\n");

  const commands = {
    one: ["./train                            # a GPU, if there is one"],
    gpus: ["accelerate launch --num_processes 4 ./train"],
    machines: [
      "# on each machine, with a --machine_rank of its own; 4 GPUs each",
      "accelerate launch --num_machines 2 --machine_rank 0 --num_processes 8 \\",
      "    --main_process_ip 10.0.0.1 --main_process_port 29500 ./train",
    ],
  };
  // What to know about each choice: a text, and the page that tells more.
  const notes = {
    accumulation: ["The last, short window of an epoch is divided by its real length.", "training.html#accumulation", "Accumulation"],
    clipping: ["Gradients are unscaled first under fp16, and the norm is that of all ranks.", "schedules.html#clipping", "Clipping"],
    precision: ["<code>accelerate launch --mixed_precision bf16</code> does the same without a line in the program; <code>\"fp16\"</code> brings a scaler with it.", "training.html#mixed-precision", "Mixed precision"],
    schedule: ["A prepared schedule counts updates that were made, and moves one step for each process.", "schedules.html", "Optimizers and schedules"],
    checkpoints: ["A killed run goes on in the middle of an epoch with the very next sample, on another number of ranks too.", "training_state.html", "Save and resume"],
    tracking: ["<code>log()</code> does not wait for the device, and only rank 0 writes. <code>accelerate launch --monitor</code> shows the same live.", "tracking.html", "Trackers"],
    gpus: ["A batch of 64 on 4 ranks is 256 in all: scale the learning rate, or set <code>.data_loader = {.split_batches = true}</code>.", "launching.html", "Launching"],
    machines: ["SLURM, MPI and ssh need no addresses: the launcher reads the allocation or a host file.", "launching.html#several-machines", "Several machines"],
    sharding: ["Stage 2 shares out gradients and the state of the optimizer, stage 3 the parameters too.", "sharding.html", "Sharding"],
  };

  const chosenNow = () => {
    const data = new FormData(form);
    const chosen = new Set(options.filter((name) => data.has(name)));
    const where = data.get("where");
    if (where !== "one") chosen.add("several");
    return { chosen, where };
  };

  const rowsOf = (chosen) => {
    // Lines that only one side has stand beside those of the other side that come next to them.
    const rows = [];
    let left = [], right = [], unit = 0;
    const flush = () => {
      unit += 1;
      for (let at = 0; at < Math.max(left.length, right.length); ++at) rows.push([left[at], right[at], unit]);
      left = [], right = [];
    };
    for (const line of present(chosen)) {
      if (line[0] === "break") { flush(); continue; }
      if (line[0] === "before" && right.length) flush();
      if (line[0] === "before") left.push(line);
      else if (line[0] === "after") right.push(line);
      else { flush(); rows.push([line, line, 0]); }
    }
    flush();
    return rows;
  };

  const cell = (line, sign, number) => {
    const node = document.createElement("div");
    node.className = `cell ${line ? sign : "none"}`;
    // Lines that are too long go on below themselves, a little further in.
    const indent = line ? line[2].length - line[2].trimStart().length + 4 : 0;
    node.innerHTML = line ? `<span class="number">${number}</span><span class="sign">${{ new: "+", old: "−", same: " " }[sign]}</span><code style="--indent: ${indent}ch">${line[3] || " "}</code>` : "";
    return node;
  };

  const draw = () => {
    const { chosen, where } = chosenNow();
    const target = document.getElementById("loop-lines");
    target.replaceChildren();
    const numbers = [0, 0];
    const changed = [0, 0];
    // Rows that differ together stay together, so that a narrow page can show old lines above new ones.
    let group = null, unit = null;
    for (const [before, after, differs] of rowsOf(chosen)) {
      if (!group || unit !== differs) {
        unit = differs;
        group = document.createElement("div");
        group.className = "rows";
        group.dataset.differs = Boolean(differs);
        target.append(group);
      }
      if (before) numbers[0] += 1;
      if (after) numbers[1] += 1;
      if (differs && before?.[2]) changed[0] += 1;
      if (differs && after?.[2]) changed[1] += 1;
      group.append(cell(before, differs ? "old" : "same", numbers[0]), cell(after, differs ? "new" : "same", numbers[1]));
    }
    document.getElementById("counts").textContent = `${changed[0]} lines go, ${changed[1]} come.`;
    document.getElementById("command").textContent = commands[where].join("\n") + (chosen.has("tracking") ? "\ntensorboard --logdir runs/first" : "");
    const list = document.getElementById("notes");
    list.replaceChildren();
    for (const name of [...options.filter((name) => chosen.has(name) && name !== "several"), where]) {
      if (!notes[name]) continue;
      const item = document.createElement("li");
      item.innerHTML = `${notes[name][0]} <a href="${notes[name][1]}">${notes[name][2]}</a>`;
      list.append(item);
    }
    history.replaceState(null, "", `#${[...options.filter((name) => chosen.has(name) && name !== "several"), where].join(",")}`);
  };

  form.addEventListener("change", (event) => {
    // There is nobody to share with in one process.
    if (event.target.name === "sharding" && event.target.checked && form.elements.where.value === "one") form.elements.where.value = "gpus";
    if (event.target.name === "where" && event.target.value === "one") form.elements.sharding.checked = false;
    draw();
  });
  document.getElementById("copy-loop").addEventListener("click", async (event) => {
    await window.copyText(window.composeLoop([...chosenNow().chosen], "after") + "\n", event.currentTarget);
  });

  for (const name of decodeURIComponent(location.hash.slice(1)).split(",")) {
    if (name in commands) form.elements.where.value = name;
    else if (options.includes(name) && form.elements[name]) form.elements[name].checked = true;
  }
  draw();
  document.body.dataset.ready = "true";
})();
