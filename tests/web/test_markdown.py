"""Markdown of agents is rendered without hiding a letter, leading anywhere or loading anything."""

import re

import pytest

from runtime.web.markdown import MAX_MARKDOWN, looks_like_markdown, markdown

ELEMENTS = frozenset(
    {"p", "strong", "em", "ul", "ol", "li", "blockquote", "code", "pre", "br", "hr", "span"}
)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Hi", '<p class="heading"><strong>Hi</strong></p>'),
        ("a\nb", "<p>a<br>b</p>"),
        ("1. a\n1. b", '<ol><li value="1">a</li><li value="1">b</li></ol>'),
        ("**b** *i* `c`", "<p><strong>b</strong> <em>i</em> <code>c</code></p>"),
        ('[a](http://x.y "t")', '<p><span class="link">a</span> ⟨http://x.y t⟩</p>'),
        ("[a](javascript:x)", '<p><span class="link">a</span> ⟨javascript:x⟩</p>'),
        ("![a](http://x)", '<p><span class="meta">image, not loaded:</span> a ⟨http://x⟩</p>'),
        ("<b>x</b> <!-- c -->", "<p>&lt;b&gt;x&lt;/b&gt; &lt;!-- c --&gt;</p>"),
        ("&#8203; &amp;", "<p>&amp;#8203; &amp;amp;</p>"),
        ("[x]: http://hidden.example", "<p>[x]: http://hidden.example</p>"),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    assert markdown(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "**a**\u200b",
        "**a**\u202e",
        "**a**\r\nb",
        f"{'>' * 30} too deep",
        "pay 2*3*4 now",
        "x" * (MAX_MARKDOWN + 1),
    ],
)
def test_what_would_hide_something_is_not_rendered(text: str) -> None:
    assert markdown(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '[a](<"onmouseover=x>)',
        "```<img src=x>\n</pre><script>\n```",
        '![<i>]("><i>)',
        "<a href='x'>b</a>",
        "- > # `<b>`\n\n  1) *<u>*",
    ],
)
def test_only_known_elements_come_out(text: str) -> None:
    html = markdown(text)
    assert html
    tags = re.findall(r"<(/?)([a-z]+)((?: [a-z]+=\"[^\"<>]*\")*)>", html)
    assert len(tags) == html.count("<")
    assert {name for _, name, _ in tags} <= ELEMENTS
    assert {attrs.split("=")[0].strip() for *_, attrs in tags} <= {"", "class", "value"}


def test_plain_text_is_not_taken_for_markdown() -> None:
    plain = ["Hello,\nwe are sorry.\n\n- one", "5 * 3 * 2", "a_b_c", "#1 of the list", "see [1]"]
    assert not any(map(looks_like_markdown, plain))
    signs = ["# Title", "the **sum**", "[a](http://x)", "```\ncode\n```"]
    assert all(map(looks_like_markdown, signs))
