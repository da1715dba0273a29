// Elements from data. Text is only ever text: nothing here, or anywhere in the page, makes markup of a string, and the
// page's policy (trusted-types 'none') would not let it.

/** Make an element: `h("td", {class: "name"}, "text", child)`. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

/** Set an element's text, if it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children);
}

/** A bar with its number: the length says it, and the text says it too. */
export function bar(kind = "") {
  const length = h("div", { class: `length ${kind}` });
  const text = h("span", { class: "number" });
  const element = h("div", { class: "bar" }, length, text);
  return {
    element,
    set(share, label) {
      const width = `${Math.round(Math.max(0, Math.min(1, share || 0)) * 1000) / 10}%`;
      if (length.style.width !== width) length.style.width = width;
      say(text, label);
    },
  };
}

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : Number(value).toFixed(digits);

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Math.round(value * 1e3)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  return `${Math.round(value / 60)} min`;
}
