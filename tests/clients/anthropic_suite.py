"""The anthropic SDK for Python against the box: anthropic_suite.py BASE_URL MODEL, with the key in ANTHROPIC_API_KEY."""

import json
import sys

import anthropic

from report import SCRIPTED, check, parts, raises

base, model = sys.argv[1:3]
client = anthropic.Anthropic(base_url=base, max_retries=0, timeout=120)
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WEATHER = [
    {
        "name": "weather",
        "description": "Weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


def ask(text, **more):
    return client.messages.create(**{"model": model, "max_tokens": 60, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": text}], **more})


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def models():
    """models"""
    names = [entry.id for entry in client.models.list(limit=1)]
    check(f"models.list() pages through all of them, one at a time ({names})", model in names and len(names) == len(set(names)))
    found = client.models.retrieve(model)
    check("models.retrieve() finds it, with a date", found.id == model and found.type == "model" and found.created_at.year > 2000)


def whole():
    """a whole answer"""
    answer = ask("Hello?", system="Be short.")
    check(f"a whole answer has text: {text_of(answer)!r}", text_of(answer))
    check("it is a message of the model asked for", (answer.type, answer.role, answer.model) == ("message", "assistant", model))
    check(f"it says why it ended ({answer.stop_reason})", answer.stop_reason in ("end_turn", "max_tokens"))
    used = answer.usage
    check("it tells its usage", used.input_tokens > 0 and used.output_tokens > 0)
    if SCRIPTED:
        check("cached tokens stand apart from the others", (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (6, 5, 4))
    raw = client.messages.with_raw_response.create(model=model, max_tokens=4, messages=[{"role": "user", "content": "Hello?"}])
    check("the answer carries a request id", raw.headers.get("request-id"))


def streamed():
    """a streamed answer"""
    events = list(ask("Hello?", stream=True))
    kinds = [e.type for e in events if e.type != "ping"]
    check(
        f"events come in their order ({kinds[:3]} … {kinds[-3:]})",
        kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"],
    )
    check("the first one tells the usage so far", events[0].message.usage.input_tokens is not None)
    check(
        "the last delta tells tokens and reason",
        [(e.usage.output_tokens > 0, bool(e.delta.stop_reason)) for e in events if e.type == "message_delta"] == [(True, True)],
    )
    with client.messages.stream(model=model, max_tokens=60, messages=[{"role": "user", "content": "Hello?"}]) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    check(
        f"the helper .stream() puts the same answer together from {len(pieces)} pieces",
        "".join(pieces) == text_of(final) != "" and final.usage.output_tokens > 0,
    )


def tools():
    """tools"""
    talk = [{"role": "user", "content": "How is the weather in two cities?"}]
    answer = ask("", messages=talk, tools=WEATHER)
    calls = [b for b in answer.content if b.type == "tool_use"]
    heard = [(c.id, c.name, c.input) for c in calls]
    check(
        f"two parallel calls come whole after the text ({heard})",
        [c[1:] for c in heard] == [("weather", {"city": "Oslo"}), ("weather", {"city": "Pune"})] and answer.stop_reason == "tool_use",
    )
    check("what was said before them is there", text_of(answer) == "I will look. ")
    with client.messages.stream(model=model, max_tokens=60, messages=talk, tools=WEATHER) as stream:
        final = stream.get_final_message()
    check(
        "streamed, their arguments are put together from their pieces",
        [b.input for b in final.content if b.type == "tool_use"] == [{"city": "Oslo"}, {"city": "Pune"}],
    )
    talk.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]})
    talk.append(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": c.id, "content": [{"type": "text", "text": f"sunny in {c.input['city']}"}]} for c in calls
            ],
        }
    )
    end = ask("", messages=talk, tools=WEATHER)
    check("with their results the answer follows", text_of(end) == "Rain in Oslo, sun in Pune." and end.stop_reason == "end_turn")
    check("cached tokens of the second turn are told", end.usage.cache_read_input_tokens == 60)


def structured():
    """structured output"""
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
        "additionalProperties": False,
    }
    answer = ask("The weather as a record, please.", output_config={"format": {"type": "json_schema", "schema": schema}})
    check(f"structured output is a document of its schema: {text_of(answer)!r}", isinstance(json.loads(text_of(answer))["degrees"], int))


def images():
    """images"""
    dot = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}}
    answer = ask([{"type": "text", "text": "What is this?"}, dot])
    check("an image in a message reaches the model", text_of(answer) == "A red dot.")
    talk = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [dot]}]},
    ]
    check("an image in a tool's result does too", text_of(ask("", messages=talk, tools=WEATHER)) == "A red dot.")


def thinking():
    """thinking"""
    answer = ask("Please think first.", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024})
    kinds = [b.type for b in answer.content]
    check(
        f"thinking is a block of its own with a signature ({kinds})",
        kinds == ["thinking", "text"] and answer.content[0].signature and text_of(answer) == "Eight.",
    )
    with client.messages.stream(
        model=model,
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[{"role": "user", "content": "Please think first."}],
    ) as stream:
        final = stream.get_final_message()
    check(
        "streamed as well",
        [b.type for b in final.content] == ["thinking", "text"] and final.content[0].thinking == "Seven or eight?" and final.content[0].signature,
    )


def counting():
    """counting tokens"""
    short = client.messages.count_tokens(model=model, messages=[{"role": "user", "content": "foo"}]).input_tokens
    long = client.messages.count_tokens(
        model=model, messages=[{"role": "user", "content": "foo bar " * 400}], system="Be short.", tools=WEATHER
    ).input_tokens
    check(f"count_tokens counts ({short}, {long})", 0 < short < long)


def errors():
    """errors"""
    stranger = client.with_options(api_key="vw_" + "A" * 43)
    error = raises(
        anthropic.AuthenticationError, lambda: stranger.messages.create(model=model, max_tokens=4, messages=[{"role": "user", "content": "x"}])
    )
    check(f"a wrong key raises AuthenticationError: {error and error.message}", error and error.body["error"]["type"] == "authentication_error")
    check("its request id is in body and header", error and error.request_id and error.body["request_id"] == error.request_id)
    check("a wrong key at the list of models is told in the same words", raises(anthropic.AuthenticationError, lambda: stranger.models.list()))
    bearer = anthropic.Anthropic(base_url=base, api_key=None, auth_token=client.api_key, max_retries=0)
    check(
        "the key is taken as a bearer token as well",
        text_of(bearer.messages.create(model=model, max_tokens=8, messages=[{"role": "user", "content": "Hello?"}])),
    )
    error = raises(anthropic.NotFoundError, lambda: ask("x", model="claude-nope", stream=True))
    check(f"an unknown model raises NotFoundError that names the loaded one: {error and error.message}", error and model in str(error.body))
    too_long = "far too much " * (30 if SCRIPTED else 60000)
    for name, more in (("whole", {}), ("streamed", {"stream": True})):
        error = raises(anthropic.BadRequestError, lambda more=more: ask(too_long, **more))
        check(
            f"{name}: too long a prompt raises BadRequestError in the words that clients know: {error and error.message}",
            error and "prompt is too long: " in error.body["error"]["message"] and " maximum" in error.body["error"]["message"],
        )
    check(
        "a body without messages raises BadRequestError",
        raises(anthropic.BadRequestError, lambda: client.post("/v1/messages", body={"model": model, "max_tokens": 4}, cast_to=object)),
    )


def trouble():
    """trouble"""
    error = raises(anthropic.APIStatusError, lambda: list(ask("Now break off.", stream=True)))
    check(f"an engine's error in mid-stream is an error of the SDK, in the engine's words: {error}", error and "stumbled" in str(error))
    busy = raises(anthropic.APIStatusError, lambda: ask("Tell me, are you busy?"))
    check(
        f"a busy engine is a 529 that says when to come again ({busy and busy.status_code})",
        busy and busy.status_code == 529 and busy.response.headers.get("retry-after"),
    )
    with ask("Please never stop.", stream=True) as stream:
        events = iter(stream)
        seen = [next(events) for _ in range(6)]
    check("a stream can be left in the middle", len(seen) == 6)
    check("the box answers on", text_of(ask("Hello?")))


everything = [models, whole, streamed, counting, errors]
parts(*everything, *([tools, structured, images, thinking, trouble] if SCRIPTED else []))
