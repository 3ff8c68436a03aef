"""What a program written with the openai SDK does first: list models, chat, stream, and catch the errors it knows.

openai_client.py BASE_URL MODEL, with the key in OPENAI_API_KEY. Prints one JSON line: {"steps": [{"says", "holds"}], "figures": {}}.
"""

import json
import sys
import time

import openai

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base, max_retries=0, timeout=120)
question = [{"role": "user", "content": "What is the capital of France?"}]
steps, figures = [], {}


def step(says, holds):
    steps.append({"says": says, "holds": bool(holds)})


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    except Exception as error:  # any other class is what the step reports
        print(f"expected {kind.__name__}, got {type(error).__name__}: {error}", file=sys.stderr)
    return None


names = [entry.id for entry in client.models.list()]
step(f"models.list() names the loaded model (it names {names})", names == [model])
step("models.retrieve() finds it", client.models.retrieve(model).id == model)

whole = client.chat.completions.create(model=model, messages=question, max_tokens=24, temperature=0)
text = whole.choices[0].message.content
step(f"a completion comes back with text: {text!r}", bool(text))
step("its usage adds up", whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens and whole.usage.prompt_tokens > 0)
step("it says why it ended", whole.choices[0].finish_reason in ("stop", "length"))
charged = whole.usage.total_tokens

raw = client.chat.completions.with_raw_response.create(model=model, messages=question, max_tokens=4, temperature=0)
step("the answer carries a request id", raw.headers.get("x-request-id"))
charged += raw.parse().usage.total_tokens

began = time.monotonic()
pieces, usage, first, finish = [], None, None, None
stream = client.chat.completions.create(
    model=model, messages=question, max_tokens=24, temperature=0, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    if chunk.usage:
        usage = chunk.usage
    if chunk.choices:
        first = first or time.monotonic() - began
        pieces.append(chunk.choices[0].delta.content or "")
        finish = chunk.choices[0].finish_reason or finish
step("the stream says the same as the whole answer", "".join(pieces) == text)
step(f"the stream comes in pieces ({len(pieces)})", len(pieces) > 3)
step("the stream ends with usage", usage and usage.completion_tokens > 0)
step("the stream says why it ended", finish in ("stop", "length"))
charged += usage.total_tokens if usage else 0
figures["first_token_s"] = round(first or -1, 3)
figures["completion_tokens"] = usage.completion_tokens if usage else None

plain = client.chat.completions.create(model=model, messages=question, max_tokens=8, temperature=0, stream=True)
step("a stream without the wish for usage sends none", all(chunk.usage is None for chunk in plain))
# The box counts that one all the same; the same question with the same limit costs the same.
again = client.chat.completions.create(model=model, messages=question, max_tokens=8, temperature=0)
charged += 2 * again.usage.total_tokens

early = client.chat.completions.create(model=model, messages=question, max_tokens=2, temperature=0, stream=True)
charged += again.usage.prompt_tokens + 2
step("a stream of two tokens can be read to its end", sum(1 for _ in early) >= 2)

figures["charged_tokens"] = charged

stranger = client.with_options(api_key="vw_" + "A" * 43)
error = raises(openai.AuthenticationError, lambda: stranger.models.list())
step(f"a wrong key raises AuthenticationError: {error and error.message}", error is not None)
error = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-nope", messages=question))
step(f"an unknown model raises NotFoundError that names the loaded one: {error and error.message}", error is not None and model in error.message)
error = raises(openai.BadRequestError, lambda: client.post("/chat/completions", body=[1, 2], cast_to=object))
step(f"a body that is no object raises BadRequestError: {error and error.message}", error is not None)

print(json.dumps({"steps": steps, "figures": figures}), flush=True)
sys.exit(0 if all(s["holds"] for s in steps) else 1)
