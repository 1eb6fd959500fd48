// Before anything is drawn: the chosen colours, so that nothing flashes. Not a module, for modules wait.
(function () {
  "use strict";
  let said = null;
  try { said = localStorage.getItem("primacy-theme"); } catch { said = null; }
  if (said === "light" || said === "dark") document.documentElement.dataset.theme = said;
})();
