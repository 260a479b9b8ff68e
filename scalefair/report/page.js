"use strict";
// Shows one position at a time; every number was written by Python and is in the page already.
(() => {
  const slider = document.getElementById("slider");
  const name = document.getElementById("slider-name");
  const positions = [...document.querySelectorAll(".position")];
  const show = (chosen) => {
    positions.forEach((position, i) => {
      position.classList.toggle("away", i !== chosen);
      for (const id of [`path-mark-${i}`, `row-${i}`]) {
        document.getElementById(id)?.classList.toggle("current", i === chosen);
      }
    });
    slider.value = chosen;
    name.textContent = positions[chosen].dataset.name;
    slider.setAttribute("aria-valuetext", positions[chosen].dataset.name);
  };
  const follow = () => {
    const chosen = positions.findIndex((position) => `#${position.id}` === location.hash);
    if (chosen >= 0) show(chosen);
  };
  slider.addEventListener("input", () => show(Number(slider.value)));
  window.addEventListener("hashchange", follow);
  document.getElementById("control").hidden = false;
  show(Number(slider.value));
  follow();
})();
