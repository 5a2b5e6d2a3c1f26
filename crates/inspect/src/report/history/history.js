"use strict";

// A click keeps the lines of one name in all panels, another click lets them go.

for (const line of document.querySelectorAll(".history .line")) {
  line.addEventListener("click", () => {
    const name = line.querySelector("title").textContent;
    const kept = !line.classList.contains("kept");
    for (const other of document.querySelectorAll(".history .line")) {
      other.classList.toggle("kept", kept && other.querySelector("title").textContent === name);
    }
    for (const panel of document.querySelectorAll(".history .panel-drawing")) {
      panel.classList.toggle("dimmed", kept && panel.querySelector(".kept") !== null);
    }
  });
}
