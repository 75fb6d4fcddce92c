// Gives the keyboard to the terminal, and opens a new terminal UI after the end of the last one.
window.addEventListener("load", () => {
  const keyboard = document.querySelector(".xterm-helper-textarea");
  const focus = () => keyboard.focus();
  new MutationObserver((_, observer) => {
    if (document.body.classList.contains("-first-byte")) {
      observer.disconnect();
      focus();
    }
  }).observe(document.body, { attributes: true });
  window.addEventListener("focus", focus);
  document.getElementById("again").addEventListener("click", () => window.location.reload());
});
