"""One call to a real model: does what is configured answer? `python -m kbeval.domains.smoke`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kbeval.domains.describe import Written, describe_document
from kbeval.domains.llm import Llm, LlmSettings
from kbeval.errors import KbevalError


@dataclass(frozen=True, slots=True)
class Smoke:
    """How the one call went, and what it gave or why not."""

    outcome: Literal["not run", "passed", "failed"]
    detail: str

    def __str__(self) -> str:
        return f"live smoke {self.outcome}: {self.detail}"


def live_smoke(environment: Mapping[str, str] = os.environ) -> Smoke:
    """Have one document described by the model of KBEVAL_LLM_BASE_URL and KBEVAL_LLM_MODEL.

    Without both it reports "not run"; it passes when both fields were generated.
    """
    base_url = environment.get("KBEVAL_LLM_BASE_URL", "")
    model = environment.get("KBEVAL_LLM_MODEL", "")
    if not (base_url and model):
        return Smoke("not run", "set KBEVAL_LLM_BASE_URL and KBEVAL_LLM_MODEL")
    try:
        llm = Llm(LlmSettings(model=model, base_url=base_url))
    except KbevalError as wrong:
        return Smoke("failed", str(wrong))
    fields = describe_document(
        "网关限流配置",
        "调用方限流说明",
        "网关按租户限流。超过配额的请求得到 429，响应头 Retry-After 给出等待秒数。",
        author=Written(),
        ask=llm.ask,
    )
    if fields.degraded:
        return Smoke("failed", "; ".join(f"{n}: {why}" for n, why in fields.degraded.items()))
    return Smoke("passed", f"{', '.join(fields.covers)} | {fields.when_to_retrieve}")


if __name__ == "__main__":
    smoke = live_smoke()
    sys.stdout.write(f"{smoke}\n")
    sys.exit(smoke.outcome == "failed")
