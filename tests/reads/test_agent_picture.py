"""The picture of an agent: each agent drawn once, so many of them, and how far a run came."""

from runtime.ports.agents import AgentParts, Asking
from runtime.reads.agent_picture import MAX_AGENTS, MAX_PARTS, Part, draw


def _parts(*agents: str, tools: dict[str, Asking] | None = None) -> AgentParts:
    return AgentParts(tools=tools or {}, agents=dict.fromkeys(agents, Asking.NEVER))


def _drawn(part: Part) -> str:
    below = " ".join(_drawn(agent) for agent in part.agents)
    return f"{part.name}({below})" if below else part.name


def test_agents_that_call_each_other_are_drawn_once_and_nearest_to_the_top() -> None:
    family = {"a": _parts("b", "c"), "b": _parts("a", "d"), "c": _parts("c", "b"), "d": _parts("c")}
    assert _drawn(draw("a", family).root) == "a(b(a d(c)) c(c b))"
    assert _drawn(draw("stranger", family).root) == "stranger"


def test_large_agents_are_cut_and_say_by_how_much() -> None:
    tools = {f"t{number}": Asking.ALWAYS for number in range(MAX_PARTS + 5)}
    wide = {"a": _parts(*(f"b{number}" for number in range(MAX_PARTS + 2)), tools=tools)}
    root = draw("a", wide).root
    assert (len(root.tools), root.more_tools) == (MAX_PARTS, 5)
    assert (len(root.agents), root.more_agents) == (MAX_PARTS, 2)
    deep = {f"n{number}": _parts(f"n{number + 1}") for number in range(100)}
    picture = draw("n0", deep)
    assert (picture.agents, _drawn(picture.root).count("(")) == (MAX_AGENTS, MAX_AGENTS)


def test_tools_that_ask_a_person_are_counted() -> None:
    tools = dict(zip("wxyz", Asking, strict=True))
    picture = draw("a", {"a": _parts("b", tools=tools), "b": _parts(tools={"w": Asking.NEVER})})
    assert (picture.agents, picture.tools, picture.asking) == (2, 5, 3)
