// Before anything is drawn: the chosen colours, so that nothing flashes. Not a module, for modules wait.
(function () {
  "use strict";
  var said = null;
  try { said = localStorage.getItem("primacy-theme"); } catch (error) { said = null; }
  if (said === "light" || said === "dark") document.documentElement.dataset.theme = said;
})();
