"""axe-core on the open page, at a desk and on a phone, in the light and in the dark.

Rules of colours take most of the time, and depend on computed styles alone. So they look only at elements whose styles,
with their parent's and with the backgrounds behind them, no page before had. The other rules check each page at the
desk, and on the phone the first page of each address.
"""

import re
from dataclasses import dataclass, field

from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.conftest import Desk

STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
EVERY_LOOK = [(width, scheme) for width in (1280, 320) for scheme in ("light", "dark")]
FIRST, PHONE = EVERY_LOOK[0], EVERY_LOOK[-1]  # the looks in which all other rules check the page
ID = re.compile(r"[0-9a-f-]{36}|\d+|=[^&]*")

# axe draws conclusions from colours that are still on their way.
# Each end may start others further down the tree; waiting for frames would depend on the machine.
# The library's own call also returns every rule that holds, which takes longer than the rules.
RUN = """async ({standards, ofColours, whole, known}) => {
    for (let left = 100, moving; left && (moving = document.getAnimations()).length; left--)
        moving.forEach(it => it.finish())
    const STYLES = ['color', 'backgroundColor', 'backgroundImage', 'opacity', 'filter', 'mixBlendMode',
        'fontSize', 'fontWeight', 'textDecorationLine', 'textShadow', 'borderBottom', 'position']
    const saysSomething = it => [...it.childNodes].some(one => one.nodeType === 3 && one.data.trim())
    const CLEAR = {backgroundColor: 'rgba(0, 0, 0, 0)', backgroundImage: 'none', opacity: '1', filter: 'none',
        mixBlendMode: 'normal', position: 'static'}
    const paints = new Map([[null, '']])
    const paintOf = it => {
        if (!paints.has(it)) {
            const styles = getComputedStyle(it)
            const own = Object.keys(CLEAR).map(name => styles[name] === CLEAR[name] ? '' : styles[name]).join('')
            const behind = paintOf(it.parentElement)
            paints.set(it, own ? `${behind}/${own}` : behind)
        }
        return paints.get(it)
    }
    const hash = text => {
        let [high, low] = [0xdeadbeef, 0x41c6ce57]  // cyrb53
        for (let at = 0; at < text.length; at++) {
            high = Math.imul(high ^ text.charCodeAt(at), 2654435761)
            low = Math.imul(low ^ text.charCodeAt(at), 1597334677)
        }
        return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36)
    }
    const looks = new Map()
    const lookOf = it => {
        if (!looks.has(it)) {
            const stylesOf = its => [its.tagName, its.className, ...STYLES.map(name => getComputedStyle(its)[name])]
            const text = [paintOf(it), ...stylesOf(it), ...stylesOf(it.parentElement ?? it), it.getAttribute('role'),
                it.matches('[disabled], [aria-disabled=true]'), it.closest('[aria-hidden=true]') !== null,
                saysSomething(it)].join('|')
            looks.set(it, hash(text))
        }
        return looks.get(it)
    }
    const before = new Set(known.split(' ')), fresh = new Map()
    for (const it of document.querySelectorAll('body, body *'))
        if ((saysSomething(it) || it.matches('input, select, textarea'))
                && it.checkVisibility({visibilityProperty: true}) && !before.has(lookOf(it)))
            fresh.set(lookOf(it), it)
    const kept = {resultTypes: ['violations'], selectors: false}
    const of = ({violations}) =>
        violations.flatMap(one => one.nodes.map(node => `${one.id}: ${node.html.slice(0, 160)}`))
    const found = []
    if (whole) {
        const others = Object.fromEntries(ofColours.map(name => [name, {enabled: false}]))
        found.push(...of(await axe.run({...kept, runOnly: standards, rules: others})))
    }
    if (fresh.size) {
        const only = {type: 'rule', values: ofColours}
        found.push(...of(await axe.run({include: [...fresh.values()]}, {...kept, runOnly: only})))
    }
    return [found, document.documentElement.scrollWidth, [...fresh.keys()]]
}"""


@dataclass(slots=True)
class Axe:
    """axe for one window. `known` are the looks of elements whose colours it has checked."""

    desk: Desk
    known: list[str]
    addresses: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.desk.page.add_init_script(AXE_SCRIPT)

    def violations(self) -> list[str]:
        """What axe finds on the open page in each look, and whether the page scrolls sideways there."""
        page, found = self.desk.page, list[str]()
        address = ID.sub("", page.url)
        wholes = {FIRST} if address in self.addresses else {FIRST, PHONE}
        self.addresses.add(address)
        for width, scheme in EVERY_LOOK:
            self.desk.look(width, scheme)
            given = {
                "standards": STANDARDS,
                "ofColours": OF_COLOURS,
                "whole": (width, scheme) in wholes,
                "known": " ".join(self.known),  # a list would take the browser long
            }
            what, across, fresh = page.evaluate(RUN, given)
            self.known += fresh
            found += [f"{width} {scheme}: {one}" for one in what]
            if across > width:
                found.append(f"{width} {scheme}: scrolls sideways")
        return found
