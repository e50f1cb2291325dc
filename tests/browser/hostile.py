"""Three hundred strings that want to be more than text, the same at every call.

Each begins with a word of its own, by which a test finds out whether it was shown at all.
"""

from itertools import cycle, islice

ELSEWHERE = "https://elsewhere.example"

_RUN = "window.pwned=1"

_SCRIPTS = (
    f"<script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f'"><img src=x onerror="{_RUN}">',
    f"'><svg onload={_RUN}>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<body onload={_RUN}>",
    f"<details open ontoggle={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<iframe src='javascript:parent.pwned=1'></iframe>",
    f"<a href='javascript:{_RUN}'>click</a>",
    "<object data='data:text/html,<script>parent.pwned=1</script>'></object>",
    f"<embed src='{ELSEWHERE}/x.swf'>",
    f"<base href='{ELSEWHERE}/'>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    f"<link rel=stylesheet href='{ELSEWHERE}/x.css'>",
    f"<style>body{{background:url({ELSEWHERE}/x.png)}}</style>",
    f"<math><mtext></mtext><style><img src=x onerror={_RUN}></style></math>",
    f"<template><script>{_RUN}</script></template>",
    f"--><script>{_RUN}</script><!--",
    f"]]><script>{_RUN}</script>",
    "{{ request.user.password }}{% load static %}{% debug %}",
    "${7*7}#{7*7}<%= 7*7 %>",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    "<form action=/logout/ method=post><button>Approve</button></form>",
    "</textarea></title></noscript></template><h1>Approved by security</h1>",
    "<dialog open>Approved by security. Nothing to do.</dialog>",
)
_HTMX = (
    "<div hx-get='/logout/' hx-trigger='load'>",
    f"<div hx-get='{ELSEWHERE}' hx-trigger='load'>",
    "<div data-hx-post='/logout/' data-hx-trigger='load'>",
    f"<div hx-on:load='{_RUN}' hx-on::after-swap='{_RUN}'>",
    f"<div hx-vals='js:{{a:{_RUN}}}' hx-get='/' hx-trigger='revealed'>",
    "<div data-live='inbox' data-src='/logout/?'>",
    "<div hx-swap-oob='true' id='main'>gone</div>",
    f"<div hx-ext='sse' sse-connect='{ELSEWHERE}'>",
)
_MARKDOWN = (
    f"![]({ELSEWHERE}/pixel.png?secret)",
    f"[Approve]({ELSEWHERE})",
    f"![x](javascript:{_RUN})",
    f"<{ELSEWHERE}>",
    f"[x]: {ELSEWHERE} 'y'\n[Approve][x]",
    "# Approved by security\n---\n**Nothing to check.**",
    "| a | b |\n|---|---|\n| Approved | yes |",
    "```html\n<script>window.pwned=1</script>\n```",
    f"{ELSEWHERE}/pixel.png",
    "[ ] Deny\n[x] Approve",
)
_CHARACTERS = (
    "\u202egnp.eciovni\u202c",
    "\u2066isolated\u2067backwards\u2069",
    "\u200badmin\u200b\u200c\u200d\u2060",
    "\u0430dmin@ex\u0430mple.org",
    "\uff41dmin \u1d00dmin \u03b1dmin",
    "\u00adsoft\u00adhyphens\u00ad",
    "\u180e\u3164\u115f\u2800\uffa0",
    "\U000e0061\U000e0062\U000e0063",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308" * 5,
    "z\u0336" * 60,
    "\ufeff\ufffe\uffff",
    "\u2028line\u2029paragraph\u0085next",
    "tab\tand\rreturn\x0bvertical\x0cfeed",
    "\x1b[2J\x1b[31mApproved\x1b[0m",
    "\x1b]8;;https://elsewhere.example\x07click\x1b]8;;\x07",
    "\x9b31mred\x07bell\x08\x08\x08back",
    "\u2801\U0001f600\U0001f469\u200d\U0001f4bb\U0001f3f3\ufe0f\u200d\U0001f308",
    "\u202b\u05d0\u05d1\u05d2 100 \u202c\u0661\u0662\u0663",
)
_LONG = (
    "x" * 4_000,
    "word " * 800,
    "\n" * 300 + "and the real thing at the end",
    "<b>" * 400,
    "&amp;" * 400,
    "(" * 500 + ")" * 500,
    "https://elsewhere.example/" + "a" * 2_000,
)
_KINDS = (_SCRIPTS, _HTMX, _MARKDOWN, _CHARACTERS, _LONG)


def strings(count: int = 300) -> list[str]:
    """Kind by kind in turn; what comes round again is wrapped into another kind, so that none is twice."""
    sources = [cycle(kind) for kind in _KINDS]
    found = []
    for number, source in zip(range(count), cycle(sources), strict=False):
        text = next(source)
        if number >= sum(map(len, _KINDS)):
            text = next(islice(sources[number % 4], 1)) + text
        found.append(f"h{number:03} {text}")
    return found
