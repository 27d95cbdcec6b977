"""The library of OpenAI for Python against the gateway."""

import os
import urllib.request

import openai

GATEWAY = os.environ["GATEWAY"]
TEXT = "You said: a b These are 2 words."
ASKED = {"model": "fake", "messages": [{"role": "user", "content": "a b"}]}


def client(key="s3cret"):
    return openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key=key, max_retries=0)


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


alice = client()
assert [model.id for model in alice.models.list()] == ["fake"]

whole = alice.chat.completions.create(**ASKED)
assert whole.choices[0].message.content == TEXT, whole
assert whole.usage.completion_tokens == 8, whole

# With pings between the tokens.
chunks = list(alice.chat.completions.create(**ASKED, stream=True))
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT, chunks
assert chunks[-1].choices[0].finish_reason == "stop", chunks

# Leaving in the middle; the caller sees that the model stops.
with alice.chat.completions.create(**ASKED, stream=True) as stream:
    for n, chunk in enumerate(stream):
        if n == 2:
            break

# Stopping in the middle: a short answer with an end.
stream = alice.chat.completions.create(**ASKED, stream=True)
path = "/v1/generations/" + stream.response.headers["X-Generation-Id"]
chunks = []
for chunk in stream:
    chunks.append(chunk)
    if len(chunks) == 3:
        stop = urllib.request.Request(GATEWAY + path, method="DELETE", headers={"Authorization": "Bearer s3cret"})
        assert urllib.request.urlopen(stop).status == 204
assert chunks[-1].choices[0].finish_reason == "stop" and len(chunks) < 9, chunks

assert refused(openai.AuthenticationError, lambda: client("wrong").models.list()).code == "invalid_api_key"
wrong = {"model": "fake", "messages": [{"role": "user", "content": 7}]}
assert refused(openai.BadRequestError, lambda: alice.chat.completions.create(**wrong)).param == "messages[0].content"
bob = client("b0b")
with bob.chat.completions.create(**ASKED, stream=True):
    assert refused(openai.RateLimitError, lambda: bob.chat.completions.create(**ASKED)).code == "concurrency_limit"
print(f"ok openai {openai.__version__} for Python: models, whole, streaming, leaving, stopping, errors")
