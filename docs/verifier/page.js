"use strict";
// Texts reach the page as text only (textContent): nothing that a certificate says is read as markup.
const at = (id) => document.getElementById(id);
const LARGEST = 1 << 24; // bytes of a text, as in privcalc/files.py
const NOTHING = () => ({ certificate: null, signature: null, key: null, ledgers: [], revocations: [] });
let given = NOTHING();
let worker = null, timer = null, began = 0;

function add(parent, tag, text, kind) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  parent.append(made);
  return made;
}

function take(name, text) {
  const start = text.slice(0, 400);
  let what = "certificate";
  if (text.length > LARGEST) { add(at("given"), "li", `${name}: is larger than ${LARGEST} bytes, and was not read`); return; }
  if (start.includes("-----BEGIN")) what = "key";
  else if (start.startsWith('{"n":')) what = "ledger";
  else if (/"format":\s*"privcalc signature"/.test(start)) what = "signature";
  else if (/"format":\s*"privcalc revocations"/.test(start)) what = "revocations";
  const instead = typeof given[what] === "string" ? ", in the place of the one before" : "";
  if (what === "ledger") given.ledgers.push(text);
  else if (what === "revocations") given.revocations.push(text);
  else given[what] = text;
  add(at("given"), "li", `${what}: ${name.slice(0, 200)}, ${text.length} characters${instead}`);
}

async function read(files) {
  for (const file of files) {
    if (file.size > LARGEST) { add(at("given"), "li", `${file.name.slice(0, 200)}: is larger than ${LARGEST} bytes, and was not read`); continue; }
    take(file.name, await file.text());
  }
}

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// The files of a packed archive, by their names.
async function unpacked(packed) {
  const all = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  const found = {};
  for (let from = 0; from + 512 <= all.byteLength; ) {
    const field = (at, length) => new TextDecoder().decode(new Uint8Array(all, from + at, length)).split("\0")[0];
    const name = field(0, 100), size = parseInt(field(124, 12), 8) || 0;
    if (name) found[name.replace("package/", "")] = all.slice(from + 512, from + 512 + size);
    from += 512 + 512 * Math.ceil(size / 512);
  }
  return found;
}

// A module as a classic script: what it exports stands at the top, by its name.
const classic = (text) =>
  text
    .replaceAll("import.meta.url", '"privcalc:/"')
    .replace(/export default _createPyodideModule;/, "")
    .replace(/export\{(\w+) as loadPyodide,\w+ as version\};/, "self.loadPyodide=$1;") + "\n";

const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
const sha = async (data) => hex(await crypto.subtle.digest("SHA-256", data));
const PREFIX = "302a300506032b6570032100"; // of an Ed25519 public key, RFC 8410
const P = (1n << 255n) - 19n, EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826n;
const WEAK = new Set([0n, 1n, P - 1n, P, P + 1n, EIGHTH, P - EIGHTH]); // privcalc/signatures/keys.py
const FIELDS = "algorithm,closed,format,hash,key,lines,of,signature,time,version";
const REVOKED = "algorithm,format,hash,key,reason,signature,time,version";

// The bytes of the public key that was given; throws a text if it is none.
function trusted() {
  const found = given.key.match(/^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/);
  const der = found ? bytes(found[1].replace(/\s/g, "")) : new Uint8Array();
  if (der.length !== 44 || hex(der.slice(0, 12)) !== PREFIX) throw "the key is no Ed25519 public key in PEM";
  const raw = der.slice(12), y = BigInt("0x" + hex(raw.slice().reverse())) & ((1n << 255n) - 1n);
  if (WEAK.has(y)) throw "the key is a point of small order, under which anybody can make signatures";
  return raw;
}

// Whether a statement has these fields, those of all statements as they must be, and texts elsewhere.
const formed = (said, format, fields) =>
  Object.keys(said).sort().join() === fields && said.version === 1 && said.algorithm === "Ed25519" && said.format === format &&
  ["hash", "key", "signature", "time"].every((name) => typeof said[name] === "string");

// Throws a text unless the key signed the statement.
async function authentic(said, raw) {
  if (!/^[A-Za-z0-9+/]{86}==$/.test(said.signature) || btoa(atob(said.signature)) !== said.signature)
    throw "the signature is not the base64 of 64 bytes";
  const rest = Object.fromEntries(Object.keys(said).filter((name) => name !== "signature").sort().map((name) => [name, said[name]]));
  const text = new TextEncoder().encode(`${said.format}, version ${said.version}\n${JSON.stringify(rest)}`);
  let right = false;
  try {
    const key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
    right = await crypto.subtle.verify("Ed25519", key, bytes(said.signature), text);
  } catch (error) {
    throw `the signature could not be checked by this browser (${error})`;
  }
  if (!right) throw "the signature is wrong: it, or what it says, was changed, or another key made it";
}

// What the signature shows; throws a text if it is wrong.
async function signed(hash) {
  const raw = trusted();
  let said;
  try { said = JSON.parse(given.signature); } catch { throw "the signature is no JSON"; }
  if (!formed(said, "privcalc signature", FIELDS)) throw "the signature has not the form of one";
  if (said.of !== "certificate") throw "the signature is of a ledger: privcalc verify checks that";
  if (said.key !== (await sha(raw))) throw "the signature is of another key than that which was given";
  await authentic(said, raw);
  if (said.hash !== hash) throw "the signature is of another certificate, or of this one as it was before";
  return ["signed, with the key that was given: all of this certificate", `the signer says that this was at ${said.time}`];
}

// Lines about those who revoke the certificate, or a part of it, by another key; throws a text if it is revoked.
async function unrevoked() {
  const others = [];
  for (const text of given.revocations) {
    let list;
    try { list = JSON.parse(text); } catch { list = {}; }
    if (list.format !== "privcalc revocations" || list.version !== 1 || !Array.isArray(list.revoked) ||
        !list.revoked.every((each) => each && formed(each, "privcalc revocation", REVOKED) && typeof each.reason === "string"))
      throw "the list of revocations cannot be read, and is not taken for an empty one";
    const document = JSON.parse(given.certificate);
    const hashes = new Set([document, ...(document.parts || [])].map((each) => each && each.hash));
    for (const said of list.revoked.filter((each) => hashes.has(each.hash))) {
      const told = `the certificate ${said.hash.slice(0, 16)}…, on ${said.time}, by the key ${said.key.slice(0, 16)}…: ${said.reason}`;
      if (!given.key) throw `REVOKED: ${told} (a public key would show who signed that)`;
      const raw = trusted();
      if (said.key !== (await sha(raw))) { others.push(`another key than the one given says that it is revoked: ${told}`); continue; }
      try { await authentic(said, raw); }
      catch (why) { throw `REVOKED, by a statement of which this is wrong: ${why}`; }
      throw `REVOKED: ${told}`;
    }
  }
  return others;
}

function end(text) {
  clearTimeout(timer);
  if (worker) worker.terminate();
  worker = null;
  at("start").disabled = false;
  at("stop").disabled = true;
  at("progress").textContent = text;
}

function verdict(status, text) {
  const title = at("verdict");
  title.className = status;
  title.textContent = text;
  at("answer").hidden = false;
  at("answer").focus();
}

const short = (x) => (x === null ? "∞" : Number(x).toPrecision(9).replace(/\.?0+(e|$)/, "$1"));

function proof(line) {
  const one = JSON.parse(line), row = add(at("proofs"), "tr", "");
  const digits = (x) => (x && x < 1e-3 ? x.toExponential() : String(x));
  add(row, "td", `δ(${one.epsilon})\n≤ ${digits(one.delta)}`);
  add(row, "td", one.verdict, one.verdict === "proved" ? "verified" : one.verdict === "refuted" ? "wrong" : "undecided");
  add(row, "td", `[${digits(one.lower)},\n ${digits(one.upper)}]`);
  add(row, "td", one.seconds.toFixed(2));
  at("progress").textContent = `${at("proofs").rows.length} numbers looked at, ${((performance.now() - began) / 1000).toFixed(0)} s`;
}

// ε over δ as the certificate states it: numbers only, no word of it.
function picture(points) {
  const known = points.filter((p) => typeof p[2] === "number" && p[0] > 0);
  if (known.length < 2) return;
  const top = Math.max(...known.map((p) => p[2])) * 1.1 || 1, ns = "http://www.w3.org/2000/svg";
  const digits = known.map((p) => -Math.log10(p[0])), low = Math.min(...digits), high = Math.max(...digits);
  const x = (p) => 60 + (420 * (-Math.log10(p[0]) - low)) / (high - low || 1), y = (e) => 210 - (180 * e) / top;
  const svg = document.createElementNS(ns, "svg");
  const draw = (tag, attributes, text = "") => {
    const made = document.createElementNS(ns, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    svg.append(made);
  };
  svg.setAttribute("viewBox", "0 0 500 250");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `ε at each δ: ${known.map((p) => `${short(p[2])} at ${p[0]}`).join(", ")}`);
  draw("line", { x1: 60, y1: 210, x2: 490, y2: 210 });
  draw("line", { x1: 60, y1: 20, x2: 60, y2: 210 });
  draw("path", { d: "M" + known.map((p) => `${x(p)} ${y(p[2])}`).join("L"), "stroke-width": 2 });
  for (const p of known) draw("text", { x: x(p) - 14, y: 228 }, p[0].toExponential(0));
  for (const e of [0, top / 2, top]) draw("text", { x: 8, y: y(e) + 4 }, e.toPrecision(3));
  draw("text", { x: 270, y: 246 }, "δ");
  draw("text", { x: 40, y: 14 }, "ε");
  at("picture").replaceChildren(svg);
  add(at("picture"), "figcaption", "ε at each δ, as the certificate states it");
}

async function show(text) {
  const found = JSON.parse(text);
  let [sentence, ...lines] = found.lines;
  if (found.status === "verified" || found.status === "undecided") {
    try {
      const others = await unrevoked();
      if (given.signature && given.key) lines.unshift(...(await signed(found.sha256)));
      else if (given.signature) lines.push("the signature was not checked: that shows nothing without a public key that you trust");
      else lines.push("who made it is not shown: no signature with a public key was given");
      lines.push(...others);
    } catch (why) {
      [found.status, sentence] = ["wrong", `WRONG: ${why}`];
    }
  }
  verdict(found.status, sentence);
  at("took").textContent = `Checked here in ${found.seconds} s.${found.unit ? ` One record: ${found.unit}.` : ""}`;
  for (const line of lines) add(at("lines"), "li", line);
  for (const line of found.warnings || []) add(at("warnings"), "li", line, "warning");
  for (const [level, label, words] of (found.facts || []).slice(0, 3000)) {
    add(at("facts"), "dt", label || level);
    add(at("facts"), "dd", words);
  }
  if (found.curve) picture(found.curve);
  end(`Done in ${((performance.now() - began) / 1000).toFixed(1)} s.`);
}

function anew() {
  for (const id of ["took", "lines", "proofs", "facts", "warnings", "picture"]) at(id).replaceChildren();
  at("answer").hidden = true;
}

async function start() {
  anew();
  if (!given.certificate) { at("progress").textContent = "No certificate was given yet."; return; }
  const seconds = Math.min(3600, Math.max(1, Number(at("seconds").value) || 60));
  at("start").disabled = true;
  at("stop").disabled = false;
  at("progress").textContent = "unpacking the check";
  began = performance.now();
  const stored = {};
  for (const each of document.querySelectorAll("script[data-name]")) stored[each.dataset.name] = bytes(each.textContent);
  const files = { ...(await unpacked(stored["pyodide.tgz"])), "flint.whl": stored["flint.whl"].buffer, "room.json": stored["room.json"] };
  const scripts = ["pyodide.asm.mjs", "pyodide.mjs"].map((name) => classic(new TextDecoder().decode(files[name])));
  const source = new Blob([...scripts, at("worker").textContent], { type: "text/javascript" });
  worker = new Worker(URL.createObjectURL(source));
  const undecided = (why) => { verdict("undecided", `UNDECIDED: ${why}; nothing was found wrong`); end(""); };
  timer = setTimeout(() => undecided(`not everything could be checked within ${seconds} seconds`), (seconds + 30) * 1000);
  worker.onerror = (event) => undecided(`the check could not run (${event.message || "no message"})`);
  worker.onmessage = ({ data: { kind, value } }) => {
    if (kind === "step") at("progress").textContent = value;
    else if (kind === "proof") proof(value);
    else if (kind === "done") show(value);
    else undecided(`the check could not end: ${String(value).slice(-500)}`);
  };
  worker.postMessage({ files, text: given.certificate, ledgers: given.ledgers, seconds });
}

for (const name of ["dragover", "dragleave", "drop"])
  document.addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") read(event.dataTransfer.files);
  });
at("file").addEventListener("change", (event) => read(event.target.files));
at("add").addEventListener("click", () => { take("pasted", at("text").value); at("text").value = ""; });
at("form").addEventListener("submit", (event) => { event.preventDefault(); start(); });
at("stop").addEventListener("click", () => { end("Stopped."); verdict("undecided", "UNDECIDED: the check was stopped; nothing was found wrong"); });
at("clear").addEventListener("click", () => {
  given = NOTHING();
  at("given").replaceChildren();
  end("");
  anew();
});
