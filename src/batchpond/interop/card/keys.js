"use strict";
// Keys of a page: each does what it is listed for, or presses the button of its name; none does while somebody writes.
const isTyping = (node) => node.matches("input, textarea, select");

function press(key) {
  const button = /^[a-z0-9]$/.test(key) && document.querySelector(`[data-key="${key}"]:not(:disabled)`);
  if (button) button.click();
  return Boolean(button);
}

function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.activeElement.blur();
    else if (isTyping(event.target)) return;
    if (actions[event.key]) actions[event.key]();
    else if (!press(event.key)) return;
    event.preventDefault();
  });
}
