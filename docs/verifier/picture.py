"""The page in README.md: ``python -m docs.verifier.picture`` draws it again (needs playwright, Chromium and npm)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import privcalc as pc
from docs.verifier.__main__ import main


def draw(target: Path) -> None:
    """Check a certificate on the page, and keep what is seen of it."""
    from playwright.sync_api import sync_playwright

    folder = Path(tempfile.mkdtemp())
    main(str(folder))
    pc.certify(pc.Gaussian(noise_multiplier=20.0) * 206, delta=1e-5).save(folder / "run.cert.json")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 800, "height": 640})
        page.goto((folder / "verify.html").as_uri())
        page.set_input_files("#file", str(folder / "run.cert.json"))
        page.wait_for_selector("#given li")
        page.click("#start")
        page.wait_for_selector("#answer:not([hidden])", timeout=300_000)
        page.screenshot(path=str(target))
        browser.close()


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "images" / "verifier.png")
