"use strict";
(() => {
  // Switches: one view of a chart at a time.
  for (const fieldset of document.querySelectorAll("fieldset.switch")) {
    const views = [...fieldset.parentElement.querySelectorAll(".view")];
    fieldset.addEventListener("change", (event) => {
      for (const view of views) view.hidden = view.dataset.view !== event.target.value;
    });
  }

  // What a mark says, beside the pointer or the focus.
  const tip = document.querySelector(".tip");
  const marks = "figure path[aria-label]";
  const show = (mark, x, y) => {
    tip.textContent = mark.getAttribute("aria-label");
    tip.style.visibility = "visible";
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y - box.height - 10 < 4 ? y + 14 : y - box.height - 10}px`;
  };
  const hide = () => { tip.style.visibility = "hidden"; };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest?.(marks);
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.closest?.(marks);
    if (!mark) return hide();
    const box = mark.getBoundingClientRect();
    show(mark, box.right, box.top);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // The table of runs: sorted by a column, filtered by words.
  const number = (words) => {
    const plain = words.replace("−", "-").replaceAll(",", "");
    return plain.trim() !== "" && Number.isFinite(Number(plain)) ? Number(plain) : null;
  };
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x !== null ? -1 : 1;
    return a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => (down ? -1 : 1) * compare(a.cells[at].textContent, b.cells[at].textContent));
      body.append(...rows);
    }));
    const input = document.getElementById(table.dataset.filter);
    const count = document.getElementById(table.dataset.count);
    input?.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const words = ` ${[...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase()} `;
        row.hidden = !wanted.every((word) => words.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${rows.length}`;
    });
  }
})();
