// Runs the check, apart from the page, which can end it. Its files come in a message; it has no network.
// A page from a disk has no origin that modules could be loaded from: it puts the scripts of Pyodide before this one.
onmessage = async ({ data: { files, text, ledgers, seconds } }) => {
  const say = (kind, value) => postMessage({ kind, value });
  try {
    const served = { "pyodide.asm.wasm": "application/wasm", "python_stdlib.zip": "application/zip" };
    self.fetch = async (address) => {
      const name = String(address).split("/").pop();
      if (!(name in served)) throw new Error("nothing is fetched: " + name);
      return new Response(files[name], { headers: { "Content-Type": served[name] } });
    };
    say("step", "starting Python");
    const python = await loadPyodide({
      indexURL: "privcalc:/",
      createPyodideModule: _createPyodideModule,
      lockFileContents: new TextDecoder().decode(files["pyodide-lock.json"]),
    });
    say("step", "loading ball arithmetic");
    await python.unpackArchive(files["flint.whl"], "wheel");
    python.FS.writeFile("/room.json", files["room.json"]);
    say("step", "checking");
    const check = python.runPython(`
import json, sys
from pathlib import Path
for name, text in json.loads(Path("/room.json").read_text()).items():
    path = Path("/room", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
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
