"use strict";
(function () {
  const table = document.getElementById("trials");
  if (table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    const key = function (row, column) {
      const cell = row.cells[column];
      const text = cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
      const number = text === "" ? NaN : Number(text);
      return { text: text, number: number };
    };
    heads.forEach(function (head, column) {
      head.querySelector("button").addEventListener("click", function () {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = Array.from(table.tBodies[0].rows);
        rows.sort(function (a, b) {
          const x = key(a, column), y = key(b, column);
          if (x.text === "" || y.text === "") { return (x.text === "") - (y.text === ""); }
          const order = isNaN(x.number) || isNaN(y.number) ? x.text.localeCompare(y.text) : x.number - y.number;
          return up ? order : -order;
        });
        rows.forEach(function (row) { table.tBodies[0].appendChild(row); });
      });
    });
  }
  const copy = document.getElementById("copy");
  if (copy) {
    copy.addEventListener("click", function () {
      const command = document.getElementById("command");
      const done = function () { copy.textContent = "Copied"; };
      const select = function () { window.getSelection().selectAllChildren(command); };
      if (navigator.clipboard) { navigator.clipboard.writeText(command.textContent).then(done, select); } else { select(); }
    });
  }
})();
