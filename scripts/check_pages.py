#!/usr/bin/env python3
"""The pages in a real browser: no console error, no request, real clicks and keys, nothing that a token can do.

Needs:  pip install playwright   and a Chromium on the PATH (or CHROMIUM=path); run by hand, not by the tests.

    scripts/check_pages.py BINARY [--shots FOLDER]

Trains a small model on a text that holds markup and one that sees 1,024 tokens, writes their pages, and drives them. With
--shots it keeps pictures, light, dark and narrow, and what would be printed, to look at.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from playwright.sync_api import sync_playwright

EVIL = "</script><img src=x onerror=alert(1)>"
TEXT = "".join(f"the cat {word} on the mat , so the dog {word} too .\n" for word in ["sat", "ran", "lay"] * 60) + EVIL + "\n"


def pages(binary, folder):
    (folder / "text.txt").write_text(TEXT)
    run = lambda *args: subprocess.run([binary, *args], cwd=folder, check=True, capture_output=True)
    run("train", "text.txt", "--out", "run", "--set", "train.steps=80", "--set", "model.context=64",
        "--set", "model.layers=2", "--set", "model.heads=4", "--set", "train.heads_every=20")
    run("heads", "run", "text.txt", "--html", "heads.html")
    run("attention", "run", "--prompt", "the cat sat " + EVIL, "--out", "attention.html")
    # more weights than a page has room for
    run("train", "text.txt", "--out", "long", "--set", "train.steps=5", "--set", "train.warmup_steps=1", "--set", "train.batch=1",
        "--set", "model.context=1024", "--set", "model.layers=4", "--set", "model.heads=4", "--set", "tokenizer.kind=char")
    run("attention", "long", "--prompt", TEXT, "--out", "long.html")


def opened(context, path):
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith("file:") else None)
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    start = time.monotonic()
    page.goto(path.as_uri())
    page.wait_for_load_state("load")
    return page, wrong, time.monotonic() - start


def check_heads(page):
    title = lambda: page.locator("#head-title").inner_text()
    page.locator("circle[data-head='5']").click()
    assert "Head 1.1" in title(), title()
    page.keyboard.press("Tab")
    page.locator("circle[data-head='2']").focus()
    page.keyboard.press("Enter")
    assert "Head 0.2" in title(), title()
    page.keyboard.press("ArrowRight")
    assert page.url.endswith("#0.3") and "Head 0.2" not in title(), (page.url, title())
    page.locator("#next").click()
    assert "Head 1.0" in title(), title()
    page.locator("#up").select_option(label="entropy over its maximum")
    assert page.locator("#scatter text", has_text="entropy").count() == 1
    page.locator("summary").first.click()
    page.locator("#all thead button").nth(7).click()
    column = [float(cell) for cell in page.locator("#all tbody tr td:nth-child(9)").all_inner_texts()]
    assert column == sorted(column, reverse=True), column
    charts = page.locator("#growth-charts svg")
    assert charts.count() == 7 and all(" at step 80" in charts.nth(nth).get_attribute("aria-label") for nth in range(7))
    page.locator("#growth summary").click()
    assert page.locator("#growth-table tbody tr").count() == 5
    word = page.locator(".passage .word").nth(3)
    word.hover()
    assert page.locator(".passage output").first.inner_text().startswith(word.inner_text()), "hover says nothing"
    assert page.locator(".passage svg path").count() > 0
    assert page.locator("img").count() == 0


def check_attention(page):
    before = page.locator("#detail-title").inner_text()
    page.locator("#heads button").nth(6).click()
    assert page.locator("#detail-title").inner_text() != before
    page.locator("#map").focus()
    page.keyboard.press("ArrowUp")
    assert page.locator("#readout").inner_text().strip()
    page.locator("#table-panel summary").click()
    page.locator("#table tbody tr").last.wait_for()
    assert page.locator("#table tbody tr").count() == page.locator(".token").count()
    assert page.locator("img").count() == 0


def check_long(page):
    check_attention(page)
    assert "strongest weights of each token" in page.locator(".masthead .summary").inner_text()
    assert "all but the" in page.locator("footer").inner_text()
    # a pair that is not kept is not said to be less than it may be
    page.evaluate("""() => {
      const map = unpack(state.map);
      const query = tokenCount - 1;
      focusToken(query, [...Array(tokenCount).keys()].find((key) => weightAt(map, query, key) === 0), true);
    }""")
    assert page.locator("#readout").inner_text().endswith("or less"), page.locator("#readout").inner_text()


def check_printed(page, name):
    """Light, without controls, and nothing cut off."""
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 720, "height": 1000})
    for unwanted in page.locator("select, .directions, .screen, summary").all():
        assert not unwanted.is_visible(), f"{name} prints {unwanted.inner_text()}"
    cut = page.evaluate("""() => [document.documentElement, ...document.querySelectorAll(".scroller, .tokens, .passage")]
      .filter((box) => box.scrollWidth > box.clientWidth + 1 || (getComputedStyle(box).overflowY !== "visible" && box.scrollHeight > box.clientHeight + 1))
      .map((box) => `${box.className || box.tagName} ${box.scrollWidth} ${box.clientWidth}`)""")
    cut += page.evaluate("""() => [...document.querySelectorAll("main *")].map((part) => [part, part.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0 && (box.left < -1 || box.right > innerWidth + 1)).map(([part, box]) => `${part.tagName} ${box.left} ${box.right}`)""")
    assert not cut, f"{name} cuts off {cut}"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    corners = page.evaluate("""() => [...document.querySelectorAll("#heads canvas")].map((canvas) =>
      canvas.getContext("2d").getImageData(0, canvas.height - 1, 1, 1).data[0])""")
    assert all(corner > 100 for corner in corners), f"{name} prints dark maps: {corners}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--shots")
    args = parser.parse_args()
    binary = str(pathlib.Path(args.binary).resolve())
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        folder = pathlib.Path(folder)
        pages(binary, folder)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, check in [("heads", check_heads), ("attention", check_attention), ("long", check_long)]:
            size = (folder / f"{name}.html").stat().st_size
            assert size < 10e6, f"{name} has {size} bytes"
            for scheme, width in [("light", 1400), ("dark", 1400), ("light", 420)]:
                context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 1000})
                page, wrong, seconds = opened(context, folder / f"{name}.html")
                # a long text takes a moment, even on a busy machine not two
                assert seconds < (2 if name == "long" else 1), f"{name} took {seconds:.2f} s to open"
                assert not wrong, wrong
                check(page)
                assert not wrong, wrong
                if args.shots:
                    page.screenshot(path=f"{args.shots}/{name}-{scheme}-{width}.png", full_page=True)
                    page.pdf(path=f"{args.shots}/{name}-{scheme}-{width}.pdf", format="A4", margin={side: "14mm" for side in ("top", "right", "bottom", "left")})
                check_printed(page, name)
                context.close()
            print(f"{name}: {size / 1e6:.1f} MB; clicks and keys do what they should, nothing on the console, no request; prints whole")
        browser.close()


if __name__ == "__main__":
    main()
