// A table that sorts by its headings. Columns: {key, name, title, text(row), value(row), left, cell(row)}.

class Table {
  constructor(columns, { sort = null, descending = false, caption, pages = 100, id } = {}) {
    Object.assign(this, { columns, sort, descending, rows: [], shown: pages, pages });
    this.head = h("tr");
    this.body = h("tbody");
    this.more = h("button", { class: "quiet", onclick: () => this.draw((this.shown += 5 * this.pages)) });
    const table = h("table", { id }, h("caption", {}, caption), h("thead", {}, this.head), this.body);
    this.element = h("div", { class: "table" }, h("div", { class: "scroll" }, table), this.more);
  }

  fill(rows) {
    this.rows = rows;
    this.shown = this.pages;
    this.draw();
  }

  by(key) {
    this.descending = this.sort === key ? !this.descending : false;
    this.sort = key;
    this.draw();
  }

  draw() {
    this.head.replaceChildren(...this.columns.map((column) => this.heading(column)));
    const rows = this.sorted();
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.line(row)));
    if (!rows.length)
      this.body.append(h("tr", {}, h("td", { colspan: this.columns.length, class: "left" }, "nothing to show")));
    this.more.hidden = rows.length <= this.shown;
    this.more.textContent = `show more (${number(rows.length - this.shown)} left)`;
  }

  heading(column) {
    const mine = this.sort === column.key;
    const way = mine ? (this.descending ? "descending" : "ascending") : "none";
    const mark = mine ? (this.descending ? " ▼" : " ▲") : "";
    const button = h(
      "button",
      {
        title: column.title ?? "sort",
        onclick: () => {
          this.by(column.key);
          this.focus(column.key);
        },
      },
      column.name + mark,
    );
    return h(
      "th",
      { scope: "col", "aria-sort": way, class: column.left ? "left" : null, "data-key": column.key },
      button,
    );
  }

  /** Sorting draws the headings anew; whoever sorts by the keyboard stays where they are. */
  focus(key) {
    this.head.querySelector(`[data-key="${key}"] button`)?.focus();
  }

  line(row) {
    return h(
      "tr",
      {},
      this.columns.map((column) =>
        h(
          "td",
          { class: column.wide ? "left wide" : column.left ? "left" : null },
          column.cell ? column.cell(row) : String(column.text(row)),
        ),
      ),
    );
  }

  sorted() {
    const column = this.columns.find((one) => one.key === this.sort);
    if (!column) return this.rows;
    const value = column.value ?? ((row) => row[column.key]);
    const way = this.descending ? -1 : 1;
    const nothing = (v) => v === null || v === undefined; // stands last, whichever way
    return [...this.rows].sort((one, other) => {
      const a = value(one),
        b = value(other);
      if (nothing(a) || nothing(b)) return nothing(a) - nothing(b);
      return way * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    });
  }
}
