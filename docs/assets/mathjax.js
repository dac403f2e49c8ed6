// Formulas come as \(…\) and \[…\] inside elements of class "arithmatex"; tex-svg.js is copied beside this file by docs/hooks.py.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]], processEscapes: true },
  options: { ignoreHtmlClass: ".*", processHtmlClass: "arithmatex", enableMenu: false },
  svg: { fontCache: "local" },
};
