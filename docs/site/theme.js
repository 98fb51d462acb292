// Before anything is drawn: light or dark, as the reader chose or as the system is.
{
  let chosen = null;
  try { chosen = localStorage.getItem("accelerate-theme"); } catch { /* a private window keeps nothing */ }
  document.documentElement.dataset.theme = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
