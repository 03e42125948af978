"""Streams and completes with the official SDK (PyPI `openai`), with only base URL and key changed, and prints what its
user saw as one line of JSON.

    python openai_sdk.py BASE_URL KEY MODEL [RETRIES]
"""

import json
import sys

import openai

BASE_URL, KEY, MODEL, *RETRIES = sys.argv[1:]
# One call each unless retries are asked for: they would hide what the first answer was.
CLIENT = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=int(RETRIES[0]) if RETRIES else 0)
MESSAGES = [{"role": "user", "content": "Say something about holding fast."}]


def raised(error):
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
    }


def dumped(usage):
    return None if usage is None else usage.model_dump(exclude_unset=True)


def streamed(**options):
    seen = {"text": "", "chunks": 0, "id": None, "finish_reason": None, "usage": None, "error": None}
    try:
        for chunk in CLIENT.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, **options):
            seen["chunks"] += 1
            seen["id"] = seen["id"] or chunk.id
            if chunk.choices:
                seen["text"] += chunk.choices[0].delta.content or ""
                seen["finish_reason"] = seen["finish_reason"] or chunk.choices[0].finish_reason
            seen["usage"] = seen["usage"] or dumped(chunk.usage)
    except openai.OpenAIError as error:
        seen["error"] = raised(error)
    return seen


def completed():
    try:
        answer = CLIENT.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    except openai.OpenAIError as error:
        return {"error": raised(error)}
    data = answer.parse()
    choice = data.choices[0]
    return {
        "text": choice.message.content,
        "id": data.id,
        "finish_reason": choice.finish_reason,
        "usage": dumped(data.usage),
        "generation": answer.headers.get("x-generation-id"),
        "error": None,
    }


print(
    json.dumps(
        {
            "stream": streamed(),
            "stream_with_usage": streamed(stream_options={"include_usage": True}),
            "complete": completed(),
        }
    )
)
