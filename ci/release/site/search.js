// Finds the sections that have all words of the query; those with the words in their titles come first.
function find(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const s of sections) {
    const title = s.title.toLowerCase(), text = s.text.toLowerCase();
    if (!words.every((w) => title.includes(w) || text.includes(w))) continue;
    found.push([words.filter((w) => title.includes(w)).length, s]);
  }
  return found.sort((a, b) => b[0] - a[0]).slice(0, 30).map((f) => f[1]);
}

const list = document.getElementById("found"), field = document.getElementById("query");

function show() {
  const found = find(field.value);
  list.hidden = field.value.trim() === "";
  list.replaceChildren(...found.map((s) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = document.body.dataset.top + s.url;
    link.textContent = s.title;
    item.append(link, " " + s.url.split("#")[0]);
    return item;
  }));
  if (found.length === 0 && !list.hidden) list.textContent = "Nothing has all these words.";
}

field.addEventListener("input", show);
// A link can have words to search for: index.html?q=credits
field.value = new URLSearchParams(location.search).get("q") ?? "";
show();
