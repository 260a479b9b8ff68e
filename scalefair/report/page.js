"use strict";
// Shows one position at a time; every number was written by Python and is in the page already.
(() => {
  const slider = document.getElementById("slider");
  const output = document.getElementById("slider-name");
  const blocks = [...document.querySelectorAll(".position")];
  const show = (chosen) => {
    for (const block of blocks) {
      block.classList.toggle("away", block.dataset.position !== String(chosen));
    }
    for (let i = 0; i <= Number(slider.max); i += 1) {
      for (const id of [`path-mark-${i}`, `row-${i}`]) {
        document.getElementById(id)?.classList.toggle("current", i === chosen);
      }
    }
    const { name } = document.getElementById(`position-${chosen}`).dataset;
    slider.value = chosen;
    output.textContent = name;
    slider.setAttribute("aria-valuetext", name);
  };
  const follow = () => {
    const chosen = location.hash.match(/^#position-(\d+)$/);
    if (chosen && Number(chosen[1]) <= Number(slider.max)) show(Number(chosen[1]));
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  window.addEventListener("hashchange", follow);
  document.getElementById("control").hidden = false;
  show(Number(slider.value));
  follow();
})();
