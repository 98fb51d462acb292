// The page of messages: finds the ones that stand in a text that was pasted.
(() => {
  const headings = [...document.querySelectorAll("article h3")];
  const article = document.querySelector("article");
  const label = document.createElement("label");
  label.className = "which";
  label.innerHTML = '<span>Paste what was printed</span><textarea id="printed" spellcheck="false" autocomplete="off"></textarea><output id="which"></output>';
  article.querySelector("h2").before(label);

  // What of a message is the same in every case, in order: "rank … did not join" finds "rank 3 did not join".
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+");
  const known = headings.map((heading) => {
    const text = heading.querySelector("code").textContent;
    const pieces = text.split("…").map((piece) => piece.trim()).filter(Boolean);
    return { heading, text, length: pieces.join("").length, pattern: new RegExp(pieces.map(escaped).join("[^]{0,400}?")) };
  });

  label.querySelector("textarea").addEventListener("input", (event) => {
    const text = event.target.value;
    const found = text.trim().length < 4 ? [] : known.filter(({ pattern, length }) => length > 8 && pattern.test(text));
    found.sort((one, other) => other.length - one.length);
    const output = document.getElementById("which");
    output.replaceChildren();
    if (!found.length) {
      output.textContent = text.trim() ? "None of these messages is in it. The search (/) looks at all pages." : "";
      return;
    }
    for (const { heading, text: message } of found.slice(0, 3)) {
      const link = document.createElement("a");
      link.href = `#${heading.id}`;
      link.textContent = message;
      const line = document.createElement("div");
      line.append(link);
      output.append(line);
    }
  });
})();
