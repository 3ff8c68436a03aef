"""The openai SDK for Python against the box: openai_suite.py BASE_URL MODEL, with the key in OPENAI_API_KEY."""

import json
import sys

import openai

from report import SCRIPTED, check, parts, raises

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base, max_retries=0, timeout=120)
DOT = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
RECORD = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def ask(text, **more):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], max_tokens=60, temperature=0, **more)


def respond(given, **more):
    return client.responses.create(model=model, input=given, max_output_tokens=60, temperature=0, **more)


def models():
    """models"""
    names = [entry.id for entry in client.models.list()]
    check(f"models.list() names the model ({names})", model in names)
    check("models.retrieve() finds it", client.models.retrieve(model).id == model)


def whole():
    """a whole answer"""
    answer = ask("Hello?")
    used = answer.usage
    check(f"a whole answer has text: {answer.choices[0].message.content!r}", answer.choices[0].message.content)
    check("its model is the one asked for", answer.model == model)
    check(
        f"its usage adds up ({used.prompt_tokens} + {used.completion_tokens})", used.total_tokens == used.prompt_tokens + used.completion_tokens > 0
    )
    if SCRIPTED:
        check("its usage is the engine's own", (used.prompt_tokens, used.completion_tokens, used.prompt_tokens_details.cached_tokens) == (11, 4, 5))


def streamed():
    """a streamed answer"""
    chunks = list(ask("Hello?", stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(f"a streamed answer has text in {len(chunks)} chunks: {text[:60]!r}", text and len(chunks) > 3)
    check(
        "exactly one chunk says why it ended",
        [c.choices[0].finish_reason for c in chunks if c.choices].count(None) == sum(1 for c in chunks if c.choices) - 1,
    )
    check("the last chunk is the usage and has no choice", chunks[-1].usage and chunks[-1].usage.completion_tokens > 0 and chunks[-1].choices == [])
    check("who does not ask for usage gets none", all(c.usage is None for c in ask("Hello?", stream=True)))
    if not SCRIPTED:
        return  # The helper refuses an answer that comes to its limit of tokens, as a tiny model's does.
    with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": "Hello?"}], max_tokens=60, temperature=0) as stream:
        final = stream.until_done().get_final_completion()
    check(
        "the helper .stream() puts the same answer together",
        bool(final.choices[0].message.content) and final.choices[0].finish_reason in ("stop", "length"),
    )


def tools():
    """tools"""
    offered = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": WEATHER, "strict": True}}]
    talk = [{"role": "user", "content": "How is the weather in two cities?"}]
    answer = client.chat.completions.create(model=model, messages=talk, tools=offered, parallel_tool_calls=True)
    calls = answer.choices[0].message.tool_calls
    heard = [(c.id, c.function.name, json.loads(c.function.arguments)["city"]) for c in calls]
    wanted = [("call_oslo", "weather", "Oslo"), ("call_pune", "weather", "Pune")]
    check(f"two parallel calls come whole ({heard})", heard == wanted and answer.choices[0].finish_reason == "tool_calls")
    if not SCRIPTED:
        return  # The helper refuses an answer that comes to its limit of tokens, as a tiny model's does.
    with client.chat.completions.stream(model=model, messages=talk, tools=offered) as stream:
        final = stream.until_done().get_final_completion()
    heard = [(c.id, c.function.name, c.function.parsed_arguments["city"]) for c in final.choices[0].message.tool_calls]
    check("streamed, their arguments are put together from their pieces", heard == wanted)
    talk.append(answer.choices[0].message)
    talk += [
        {"role": "tool", "tool_call_id": c.id, "content": f"{'rain' if 'Oslo' in c.function.arguments else 'sunny'} in {c.function.name}"}
        for c in calls
    ]
    talk[-1]["content"] = "sunny in Pune"
    end = client.chat.completions.create(model=model, messages=talk, tools=offered)
    check(
        "with their results the answer follows",
        end.choices[0].message.content == "Rain in Oslo, sun in Pune." and end.choices[0].finish_reason == "stop",
    )
    check("cached tokens of the second turn are told", end.usage.prompt_tokens_details.cached_tokens == 60)


def structured():
    """structured output"""
    wish = {"type": "json_schema", "json_schema": {"name": "record", "strict": True, "schema": RECORD}}
    text = ask("The weather as a record, please.", response_format=wish).choices[0].message.content
    check(f"structured output is a document of its schema: {text!r}", isinstance(json.loads(text)["degrees"], int))
    answer = respond("The weather as a record, please.", text={"format": {"type": "json_schema", "name": "record", "strict": True, "schema": RECORD}})
    check("the same with responses", isinstance(json.loads(answer.output_text)["degrees"], int))


def images():
    """images"""
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": DOT}}]
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": content}])
    check("an image in a chat message reaches the model", answer.choices[0].message.content == "A red dot.")
    content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": DOT, "detail": "auto"}]
    check("an image in a responses message does too", respond([{"role": "user", "content": content}]).output_text == "A red dot.")


def thinking():
    """thinking"""
    answer = ask("Please think first.")
    check(
        "thinking is told apart from the answer",
        (answer.choices[0].message.content, answer.choices[0].message.reasoning_content) == ("Eight.", "Seven or eight?"),
    )
    told = respond("Please think first.", reasoning={"effort": "medium", "summary": "auto"})
    check(
        f"responses tell it as an item of its own ({[i.type for i in told.output]})",
        told.output_text == "Eight." and told.output[0].type == "reasoning",
    )


def responses():
    """responses"""
    answer = respond("Hello?")
    check(f"responses.create() has text: {answer.output_text[:60]!r}", answer.output_text and answer.status in ("completed", "incomplete"))
    check("its usage adds up", answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0)
    events = list(respond("Hello?", stream=True))
    kinds = [e.type for e in events]
    check("streamed, its numbers rise by one", [e.sequence_number for e in events] == list(range(len(events))))
    check(
        f"it begins and ends as it should ({kinds[0]} … {kinds[-1]})",
        kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] in ("response.completed", "response.incomplete"),
    )
    pieces = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    check("its pieces are its text", pieces == events[-1].response.output_text and pieces)
    with client.responses.stream(model=model, input="Hello?", max_output_tokens=60, temperature=0) as stream:
        final = stream.until_done().get_final_response()
    check("the helper .stream() puts the same answer together", bool(final.output_text))


def responses_tools():
    """tools of responses"""
    offered = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}]
    with client.responses.stream(model=model, input="How is the weather in two cities?", tools=offered) as stream:
        final = stream.until_done().get_final_response()
    calls = [i for i in final.output if i.type == "function_call"]
    check("responses bring both calls", [(c.call_id, c.parsed_arguments["city"]) for c in calls] == [("call_oslo", "Oslo"), ("call_pune", "Pune")])
    talk = [{"role": "user", "content": "How is the weather in two cities?"}]
    talk += [{"type": "function_call", "call_id": c.call_id, "name": c.name, "arguments": c.arguments} for c in calls]
    talk += [{"type": "function_call_output", "call_id": c.call_id, "output": f"sunny in {c.parsed_arguments['city']}"} for c in calls]
    check("with their results the answer follows", respond(talk, tools=offered).output_text == "Rain in Oslo, sun in Pune.")


def errors():
    """errors"""
    stranger = client.with_options(api_key="vw_" + "A" * 43)
    error = raises(openai.AuthenticationError, lambda: stranger.models.list())
    check(f"a wrong key raises AuthenticationError: {error and error.message}", error and error.code == "invalid_api_key")
    for name, call in (
        ("chat", lambda m: client.chat.completions.create(model=m, messages=[{"role": "user", "content": "x"}])),
        ("responses", lambda m: client.responses.create(model=m, input="x", stream=True)),
    ):
        error = raises(openai.NotFoundError, lambda call=call: call("gpt-nope"))
        check(
            f"{name}: an unknown model raises NotFoundError that names the loaded one: {error and error.message}",
            error and error.code == "model_not_found" and model in error.message,
        )
    too_long = "far too much " * (30 if SCRIPTED else 60000)
    for name, call in (
        ("chat", lambda: ask(too_long)),
        ("chat, streamed", lambda: ask(too_long, stream=True)),
        ("responses", lambda: respond(too_long)),
        ("responses, streamed", lambda: respond(too_long, stream=True)),
    ):
        error = raises(openai.BadRequestError, call)
        check(
            f"{name}: too long a prompt raises BadRequestError context_length_exceeded: {error and error.message}",
            error and error.code == "context_length_exceeded",
        )
    error = raises(openai.BadRequestError, lambda: client.post("/chat/completions", body=[1, 2], cast_to=object))
    check("a body that is no object raises BadRequestError", error is not None)


def trouble():
    """trouble"""
    for name, call in (("chat", lambda: ask("Now break off.", stream=True)), ("responses", lambda: respond("Now break off.", stream=True))):
        error = raises(openai.APIError, lambda call=call: [None if getattr(e, "type", "") != "response.failed" else _failed(e) for e in call()])
        check(f"{name}: an engine's error in mid-stream is an error of the SDK, in the engine's words: {error}", error and "stumbled" in str(error))
    busy = raises(openai.InternalServerError, lambda: ask("Tell me, are you busy?"))
    check("a busy engine is a 503 that says when to come again", busy and busy.status_code == 503 and busy.response.headers.get("retry-after"))
    with ask("Please never stop.", stream=True) as stream:
        seen = [next(iter(stream)) for _ in range(3)]
    check("a stream can be left in the middle", len(seen) == 3)
    with respond("Please never stop.", stream=True) as stream:
        seen = [next(iter(stream)) for _ in range(6)]
    check("a stream of responses too", len(seen) == 6)
    check("the box answers on", ask("Hello?").choices[0].message.content)


def _failed(event):
    """Responses tell an error as an event; here it counts as raised."""
    raise openai.APIError(event.response.error.message, request=None, body=None)


def embeddings():
    """embeddings"""
    made = client.embeddings.create(model=model, input=["a", "b"])
    check("embeddings come in the order of the texts", [e.index for e in made.data] == [0, 1] and len(made.data[0].embedding) > 0)


everything = [models, whole, streamed, responses, errors]
parts(*everything, *([structured, tools, images, thinking, responses_tools, trouble, embeddings] if SCRIPTED else []))
