// What every page does: light or dark, the navigation of a phone, copying code, and the part that is being read.
(() => {
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("accelerate-theme", next); } catch { /* a private window keeps nothing */ }
  });

  const menu = document.getElementById("menu");
  const pages = document.getElementById("pages");
  const setMenu = (open) => {
    document.body.classList.toggle("menu-open", open);
    menu.setAttribute("aria-expanded", String(open));
  };
  menu.addEventListener("click", () => setMenu(!document.body.classList.contains("menu-open")));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") setMenu(false); });
  document.getElementById("main").addEventListener("click", () => setMenu(false));
  const here = pages.querySelector("[aria-current]");
  if (here && pages.scrollHeight > pages.clientHeight) pages.scrollTop = here.offsetTop - pages.clientHeight / 3;

  // Pages that are opened from a folder have no clipboard of their own in every browser.
  window.copyText = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  for (const block of document.querySelectorAll(".code:not(.entity .code)")) {
    const code = block.querySelector("code");
    if (code.id === "command" || !["sh", "bash", "cpp", "cmake", "python", "json", "yaml"].includes(block.dataset.language)) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => window.copyText(code.innerText, button));
    block.append(button);
  }

  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  if (links.size) {
    const parts = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
    let current = null;
    const mark = () => {
      let read = parts[0];
      for (const part of parts) if (part.getBoundingClientRect().top < 150) read = part;
      if (read === current) return;
      links.get(current?.id)?.classList.remove("read");
      current = read;
      const link = links.get(read.id);
      link.classList.add("read");
      const box = link.closest(".contents");
      if (link.offsetTop < box.scrollTop || link.offsetTop > box.scrollTop + box.clientHeight - 40) box.scrollTop = link.offsetTop - box.clientHeight / 2;
    };
    let waits = false;
    addEventListener("scroll", () => {
      if (waits) return;
      waits = true;
      requestAnimationFrame(() => { waits = false; mark(); });
    }, { passive: true });
    mark();
  }
})();
