#!/usr/bin/env python3
"""`make demo`: does the setup wizard's steps by API against a running `make run`, then prints a chat answer.

Everything it calls is the public API. The claim code is read from the agent's local socket, as the screen at a box would show it.
Credentials made here are kept in target/run/demo.json (0600) so that a second demo works."""
import http.cookiejar
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request

import where
from where import RUN

BASE = f"http://127.0.0.1:{os.environ.get('WARDEN_PORT', '8080')}"
SAVED = RUN / "demo.json"


def stop(sentence):
    print(f"demo: {sentence}", file=sys.stderr)
    sys.exit(1)


class Api:
    """A cookie session with its CSRF proof."""

    def __init__(self):
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self.csrf = None

    def call(self, method, path, body=None, allow=()):
        headers = {"Content-Type": "application/json"}
        if self.csrf:
            headers["X-CSRF-Token"] = self.csrf
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(BASE + path, data=data, headers=headers, method=method)
        try:
            with self.opener.open(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            if error.code in allow:
                return error.code, json.loads(text)
            stop(f"{method} {path} answered {error.code}: {text}")
        except (urllib.error.URLError, OSError) as error:
            stop(f"the agent does not answer on {BASE} ({error}). Start it with `make run` in another terminal.")


def sign_in(api):
    _, setup = api.call("GET", "/api/setup/state")
    if not setup["done"]:
        who = {"username": "admin", "password": secrets.token_urlsafe(16)}
        _, session = api.call("POST", "/api/setup/claim", {"claim_code": where.status()["claim_code"], **who})
        descriptor = os.open(SAVED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(who, file)
        print(f"demo: claimed the box; admin name and password are in {SAVED}")
    elif SAVED.exists():
        _, session = api.call("POST", "/api/auth/login", json.loads(SAVED.read_text()))
    elif "WARDEN_USER" in os.environ:
        who = {"username": os.environ["WARDEN_USER"], "password": os.environ["WARDEN_PASSWORD"]}
        _, session = api.call("POST", "/api/auth/login", who)
    else:
        stop("this box was claimed by hand. Give WARDEN_USER and WARDEN_PASSWORD, or start fresh: stop `make run` and remove target/run.")
    api.csrf = session["csrf"]


def running_model(api):
    _, listed = api.call("GET", "/api/models")
    models = listed["models"]
    if not models:
        _, model = api.call("POST", "/api/models", {"path": "SmolLM2-135M-Instruct.Q4_1.gguf", "served_model_name": "smollm2-135m"})
        print("demo: registered smollm2-135m")
    else:
        model = models[0]
    if model["status"] not in ("running", "loading", "waiting"):
        api.call("POST", f"/api/models/{model['id']}/load", allow=(409,))
    shown = None
    while True:
        _, model = api.call("GET", f"/api/models/{model['id']}")
        state = model["state"]
        line = f"{state['state']}{' (' + state['phase'] + ')' if state.get('phase') else ''}"
        if state.get("reason"):
            line += f": {state['reason']['message']}"
        if line != shown:
            print(f"demo: {model['served_model_name']} is {line}", flush=True)
            shown = line
        if state["state"] == "running":
            return model
        if state["state"] == "failed":
            stop("the model did not load; the sentence above says why.")
        time.sleep(1)


def ask(model, key):
    question = os.environ.get("QUESTION", "What is the capital of France?")
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": question}]
    body = {"model": model["served_model_name"], "messages": messages, "max_tokens": 64, "temperature": 0}
    request = urllib.request.Request(
        BASE + "/v1/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    )
    started = time.monotonic()
    with urllib.request.urlopen(request, timeout=300) as answer:
        reply = json.load(answer)
    text = reply["choices"][0]["message"]["content"].strip()
    usage = reply["usage"]
    print(f"demo: asked {question!r}")
    print(f"demo: answer: {text}")
    print(f"demo: {usage['prompt_tokens']} prompt and {usage['completion_tokens']} answer tokens in {time.monotonic() - started:.1f} s")


def main():
    api = Api()
    sign_in(api)
    model = running_model(api)
    _, key = api.call("POST", "/api/tokens", {"name": f"demo {int(time.time())}"})
    ask(model, key["plaintext"])
    api.call("DELETE", f"/api/tokens/{key['id']}")


main()
