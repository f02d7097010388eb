"""Ask a language model for one checked object, through litellm; or `LlmError` with the reason."""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from kbeval.corpus.fields import one_line
from kbeval.domains.replies import Reply, T, read_reply
from kbeval.domains.texts import clean
from kbeval.errors import ConfigError, LlmError

ResponseFormat = Literal["json_object", "json_schema", "text"]
Messages = Sequence[Mapping[str, str]]
_FOREIGN = re.compile(r"Expecting value|[Ii]nvalid response|no 'choices'")
_ABOUT_ONE_REQUEST = (400, 413, 422, 429)  # the provider lives, and said no to this one


class ConnectionFailed(LlmError):
    """No answer came that a further call could hope to better; the text is the reason."""


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """Which model is asked, and how patiently.

    With `base_url` the server is any that speaks OpenAI's protocol and gets `model` exactly as
    written; without it `model` is a name litellm knows ("anthropic/..."). Each of the
    1 + `max_retries` attempts has its share of `budget_seconds`, which bounds the whole call.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "KBEVAL_LLM_API_KEY"  # the variable that holds the key
    budget_seconds: float = 120.0  # one call: all its attempts and the waits between them
    max_retries: int = 1  # after a time-out, a lost connection, 408, 409, 429 or 5xx
    give_up_after: int = 3  # consecutive failures to connect
    max_tokens: int | None = 4096  # of a reply, thinking included
    temperature: float | None = 0.0
    response_format: ResponseFormat = "json_object"
    allow_reasoning_field: bool = False  # an empty content may be read from the reasoning field

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ConfigError("llm.model: got ''; the name of a model is expected")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"llm.base-url: got {self.base_url!r}; a URL such as http://127.0.0.1:8080/v1 "
                "is expected"
            )
        if not 0 < self.budget_seconds < float("inf"):
            raise ConfigError(f"llm.budget-seconds: got {self.budget_seconds}; above 0 is allowed")
        for key, value, least in (
            ("max-retries", self.max_retries, 0),
            ("give-up-after", self.give_up_after, 1),
            ("max-tokens", self.max_tokens, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"llm.{key}: got {value}; {least} or more is allowed")

    @property
    def where(self) -> str:
        """The model and its server, for messages."""
        at = re.sub("//[^/@]*@", "//***@", self.base_url or "")  # no password in a message
        return f"model {self.model!r}" + (f" at {at}" if at else "")


class Llm:
    """A model that is asked for objects, and is left alone once it stops answering.

    After `give_up_after` consecutive calls without an answer, every further call fails at once
    until `reset`. Calls may come from many threads.
    """

    def __init__(self, settings: LlmSettings) -> None:
        self.settings = settings
        self._failures: list[str] = []  # reasons of the consecutive failures to connect
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether calls fail at once."""
        return len(self._failures) >= self.settings.give_up_after

    def reset(self) -> None:
        """Ask again, as if nothing had failed."""
        with self._lock:
            self._failures.clear()

    def ask(self, prompt: str | Messages, schema: type[T]) -> Reply[T]:
        """Ask once for an object of the schema; `prompt` is one user message, or all messages.

        Raises `LlmError` for a reply of no use, `ConnectionFailed` where no answer came.
        """
        self._check_going()
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        cleaned = [{key: clean(text) for key, text in one.items()} for one in messages]
        try:
            response = _completion(self.settings, cleaned, schema)
        except ConnectionFailed as failure:
            with self._lock:
                self._failures.append(str(failure))
            raise
        self.reset()
        return read_reply(
            response, schema, allow_reasoning_field=self.settings.allow_reasoning_field
        )

    def _check_going(self) -> None:
        with self._lock:
            if self.stopped:
                raise ConnectionFailed(
                    f"{self.settings.where} is no longer asked: its last {len(self._failures)} "
                    f"calls failed ({self._failures[-1]})"
                )


def reply_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema a server is given: every key required, no other key allowed."""
    told = schema.model_json_schema(by_alias=True)
    for described in told["properties"].values():
        described.pop("default", None)
    return told | {"required": list(told["properties"]), "additionalProperties": False}


def _completion(
    settings: LlmSettings, messages: list[dict[str, str]], schema: type[BaseModel]
) -> Mapping[str, Any]:
    """The response as the provider sent it; litellm drops contents that are lists of parts.

    Raises `LlmError` or `ConnectionFailed`.
    """
    litellm = _litellm()
    sent: list[Any] = []

    def keep(call: Mapping[str, Any]) -> None:
        sent.append(call.get("original_response"))

    def complete() -> Mapping[str, Any]:
        response = litellm.completion(
            messages=messages, logger_fn=keep, **_arguments(settings, schema)
        )
        return _as_sent(sent) or response.model_dump(warnings=False)

    try:
        return _within(settings.budget_seconds, complete)
    except TimeoutError:
        reason = f"time-out: no complete answer within {settings.budget_seconds:g} s"
        raise ConnectionFailed(f"{settings.where}: {reason}") from None
    except Exception as error:  # litellm raises its own, openai's, httpx's and plain ones
        if response := _as_sent(sent):
            return response
        raise _failure(error, settings) from error


def _litellm() -> Any:  # noqa: ANN401
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or the import itself calls out
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # or it reads a .env lying about
    try:
        import litellm
    except ImportError as error:
        raise LlmError(
            f"the LLM client is not installed ({error}); pip install 'kbeval[llm]'"
        ) from None
    litellm.suppress_debug_info = True  # it would print to stdout
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")  # parts as content
    return litellm


def _arguments(settings: LlmSettings, schema: type[BaseModel]) -> dict[str, Any]:
    key = os.environ.get(settings.api_key_env)
    arguments: dict[str, Any] = {
        "model": f"openai/{settings.model}" if settings.base_url else settings.model,
        "api_base": settings.base_url,
        "api_key": key or ("none" if settings.base_url else None),
        "timeout": settings.budget_seconds / (1 + settings.max_retries),
        "max_retries": settings.max_retries,  # the only retries; num_retries would multiply them
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "drop_params": True,  # what the model does not take
    }
    if settings.response_format == "json_object":
        arguments["response_format"] = {"type": "json_object"}
    elif settings.response_format == "json_schema":
        told = {"name": schema.__name__, "strict": True, "schema": reply_schema(schema)}
        arguments["response_format"] = {"type": "json_schema", "json_schema": told}
    return {name: value for name, value in arguments.items() if value is not None}


def _as_sent(sent: Sequence[Any]) -> Mapping[str, Any] | None:
    """The last response litellm saw that has choices."""
    for response in reversed(sent):
        if isinstance(response, str):
            try:
                response = json.loads(response)
            except ValueError:
                continue
        if isinstance(response, Mapping) and isinstance(response.get("choices"), list):
            return response
    return None


def _within(seconds: float, call: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The call's result, or `TimeoutError`; a call out of time is left to its own time-outs."""
    future: Future[Mapping[str, Any]] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="kbeval-llm", daemon=True).start()
    return future.result(timeout=seconds)


def _failure(error: Exception, settings: LlmSettings) -> LlmError:
    """What a failed call means: this request was refused, or the provider gives no answers."""
    status = getattr(error, "status_code", None)
    text = one_line(str(error)).split("Traceback")[0]
    text = text.rpartition("Exception - ")[2] or text
    if key := os.environ.get(settings.api_key_env):
        text = text.replace(key, "***")
    attempts = f" ({1 + settings.max_retries} attempts)" if settings.max_retries else ""
    reason = f"{settings.where}: {_name(error)}: {text[:200]}"
    if status in _ABOUT_ONE_REQUEST:
        return LlmError(reason + (attempts if status == 429 else ""))
    if status in (401, 403):
        return ConnectionFailed(f"{reason}; the key is read from {settings.api_key_env}")
    return ConnectionFailed(reason + ("" if status == 404 else attempts))


def _name(error: Exception) -> str:
    """The kind of failure; litellm gives most of those that are its own the status 500."""
    status, text = getattr(error, "status_code", None), str(error)
    if status == 408:
        return "time-out"
    if "Connection error" in text:
        return "no connection"
    if _FOREIGN.search(text):
        return "not an OpenAI-compatible response"
    return f"HTTP {status}" if isinstance(status, int) else type(error).__name__
