// Runs the check, apart from the page, which can end it. Its files come in a message; it has no network.
onmessage = async ({ data: { files, text, ledgers, seconds } }) => {
  const say = (kind, value) => postMessage({ kind, value });
  try {
    const served = { "pyodide.asm.wasm": "application/wasm", "python_stdlib.zip": "application/zip" };
    self.fetch = async (address) => {
      const name = String(address).split("/").pop();
      if (!(name in served)) throw new Error("nothing is fetched: " + name);
      return new Response(files[name], { headers: { "Content-Type": served[name] } });
    };
    const script = (name) => import(URL.createObjectURL(new Blob([files[name]], { type: "text/javascript" })));
    const [{ loadPyodide }, asm] = [await script("pyodide.mjs"), await script("pyodide.asm.mjs")];
    say("step", "starting Python");
    const python = await loadPyodide({
      indexURL: "privcalc:/",
      createPyodideModule: asm.default,
      lockFileContents: new TextDecoder().decode(files["pyodide-lock.json"]),
    });
    say("step", "loading ball arithmetic");
    await python.unpackArchive(files["flint.whl"], "wheel");
    await python.unpackArchive(files["room.zip"], "zip", { extractDir: "/room" });
    say("step", "checking");
    const check = python.runPython(`
import json, sys
sys.path.insert(0, "/room")
from privcalc.certificate.alone import confirm, enter
enter(json.load(open("/room/mechanisms.json")))
lambda text, ledgers, seconds, progress: confirm(text, list(ledgers), seconds, progress)
`);
    say("done", check(text, ledgers, seconds, (line) => say("proof", line)));
  } catch (error) {
    say("failed", String(error));
  }
};
