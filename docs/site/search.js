// The search: looks through an index that is loaded when it is first opened. No server is asked.
(() => {
  const dialog = document.getElementById("search");
  const input = document.getElementById("search-text");
  const list = document.getElementById("search-results");
  const state = document.getElementById("search-state");
  const root = document.body.dataset.root;
  let entries = null;
  let chosen = -1;

  const load = () => new Promise((done, failed) => {
    if (window.searchIndex) return done();
    const script = document.createElement("script");
    script.src = `${root}assets/search-index.js`;
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });

  const open = async () => {
    if (!dialog.open) dialog.showModal();
    input.select();
    try {
      await load();
    } catch {
      state.textContent = "The index of the search is missing.";
      return;
    }
    entries ??= window.searchIndex.map(([address, page, heading, text, kind]) => ({
      address, page, heading, text, kind,
      name: (heading || page).toLowerCase(), pageName: page.toLowerCase(), words: text.toLowerCase(),
    }));
    search();
  };

  const isWordStart = (text, at) => at === 0 || !/[\p{L}\p{N}_]/u.test(text[at - 1]);
  const scoreOf = (text, word) => {
    const at = text.indexOf(word);
    if (at < 0) return 0;
    if (text === word) return 4;
    return isWordStart(text, at) ? (at === 0 ? 3 : 2) : 1;
  };
  // Every word must be found; names count more than texts, whole names most.
  const score = (entry, words) => {
    let sum = 0;
    const last = entry.name.split("::").at(-1);
    for (const word of words) {
      const best = Math.max(12 * (last === word ? 4 : scoreOf(entry.name, word)), 4 * scoreOf(entry.pageName, word), scoreOf(entry.words, word));
      if (best === 0) return 0;
      sum += best;
    }
    if (words.length === 1 && last === words[0]) sum += 30;
    if (words.length > 1 && entry.words.includes(words.join(" "))) sum += 6;
    if (words.length > 1 && entry.name.includes(words.join(" "))) sum += 24;
    if (entry.name.startsWith("accelerator::")) sum += 8;
    if (!entry.heading) sum += 2;
    return sum + (entry.kind === "page" ? 3 : 0);
  };

  const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" }[sign]));
  const marked = (text, words) => {
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
    return text.split(pattern).map((piece, at) => (at % 2 ? `<mark>${escape(piece)}</mark>` : escape(piece))).join("");
  };
  const excerpt = (entry, words) => {
    const at = Math.min(...words.map((word) => entry.words.indexOf(word)).filter((place) => place >= 0), Infinity);
    const from = at === Infinity ? 0 : Math.max(0, at - 60);
    return (from ? "…" : "") + marked(entry.text.slice(from, from + 170), words) + (entry.text.length > from + 170 ? "…" : "");
  };

  const choose = (index) => {
    list.children[chosen]?.firstElementChild.removeAttribute("aria-selected");
    chosen = index;
    const node = list.children[chosen]?.firstElementChild;
    node?.setAttribute("aria-selected", "true");
    node?.scrollIntoView({ block: "nearest" });
  };

  const kinds = { page: "", api: "API", example: "Example", tool: "" };
  const search = () => {
    if (!entries) return;
    const words = input.value.toLowerCase().replace(/\(\)/g, "").split(/\s+/).filter(Boolean);
    list.replaceChildren();
    chosen = -1;
    if (!words.length) {
      state.textContent = "";
      return;
    }
    const found = [];
    entries.forEach((entry, order) => {
      const points = score(entry, words);
      if (points) found.push({ entry, points, order });
    });
    found.sort((one, other) => other.points - one.points || one.order - other.order);
    for (const { entry } of found.slice(0, 30)) {
      const item = document.createElement("li");
      const kind = kinds[entry.kind] ? `<span class="tag">${kinds[entry.kind]}</span>` : "";
      const path = entry.heading ? `<small>${escape(entry.page)}</small>` : "";
      item.innerHTML = `<a href="${root}${encodeURI(entry.address)}"><strong>${marked(entry.heading || entry.page, words)}</strong>${kind}${path}<span>${excerpt(entry, words)}</span></a>`;
      item.firstElementChild.addEventListener("click", () => dialog.close());
      list.append(item);
    }
    state.textContent = found.length ? (found.length > 30 ? `The first 30 of ${found.length}` : "") : "Nothing was found.";
    if (found.length) choose(0);
    list.scrollTop = 0;
  };

  document.getElementById("search-open").addEventListener("click", open);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  input.addEventListener("input", search);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = list.children.length;
      if (count) choose((chosen + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter") {
      event.preventDefault();
      list.children[chosen]?.firstElementChild.click();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName) && !["checkbox", "radio"].includes(document.activeElement.type);
    if ((event.key === "/" && !typing && !dialog.open) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      open();
    }
  });
})();
