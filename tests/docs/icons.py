"""Draws the icons of the installed app from the page's own: `python -m tests.docs.icons`, with Chromium."""

from playwright.sync_api import sync_playwright

from config.env.environment import ROOT
from tests.support.commands import CHROMIUM, FLAGS

IMAGES = ROOT / "static/img"
ICON = (IMAGES / "favicon.svg").read_text()
# Systems cut a maskable icon to a shape, at most to the inner 80 %: the ground fills it, and the mark is smaller.
MARK = '<g transform="translate(3.6 3.6) scale(.7)"><path'
MASKABLE = ICON.replace(' rx="5"', "").replace("<path", MARK).replace("</svg>", "</g></svg>")


def main() -> None:
    """Write the three files."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for name, size, drawing in (
            ("icon-192", 192, ICON),
            ("icon-512", 512, ICON),
            ("icon-maskable-512", 512, MASKABLE),
        ):
            page = browser.new_page(viewport={"width": size, "height": size})
            page.set_content(f"<style>body{{margin:0}}svg{{display:block}}</style>{drawing}")
            page.screenshot(path=IMAGES / f"{name}.png", omit_background=True)
        browser.close()


if __name__ == "__main__":
    main()
