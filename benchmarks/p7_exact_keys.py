"""P7: exact keys in one pass against a naive scan over all keys, folding included in both.

Run: python benchmarks/p7_exact_keys.py
Made-up but plausible documents, 10,000 of them with about 26,000 distinct keys, per language; half
of the queries name a key in a sentence, half do not. Each figure is the median of several rounds.
Excluded: building (printed apart), and making the list of keys for the naive scan.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product

from kbeval.config import L0Settings
from kbeval.records import Document
from kbeval.retrieval.l0 import CJK, ExactKeys, fold

GOAL = 500
DOCUMENTS, KEYS, QUERIES, ROUNDS = 10_000, 26_000, 60, 9

WORDS = {
    "en": (
        "order payment user gateway billing search inventory session audit report queue cache "
        "ledger invoice catalog storage identity email metrics scheduler webhook",
        "service database cluster index topic table bucket replica token certificate pipeline "
        "deployment worker endpoint schema backup dashboard container volume proxy",
        "failover restore rollback timeout migration upgrade scaling tuning alert retention "
        "rotation throttling recovery monitoring encryption compaction cleanup checklist",
    ),
    "zh": (
        "订单 支付 用户 网关 计费 搜索 库存 会话 审计 报表 队列 "
        "缓存 账本 发票 商品 存储 身份 邮件 指标 调度 回调",
        "服务 数据库 集群 索引 主题 数据表 存储桶 副本 令牌 证书 "
        "流水线 部署 节点 接口 表结构 备份 看板 容器 磁盘 代理",
        "切换 恢复 回滚 超时 迁移 升级 扩容 调优 告警 保留 "
        "轮换 限流 自愈 监控 加密 压缩 清理 检查清单",
    ),
}
SENTENCES = {
    "en": (
        "how do I handle {} in production when the on-call engineer is away?",
        "What should we check before {} starts?",
        "please explain the difference between {} and the old procedure",
    ),
    "zh": (
        "生产环境里{}应该怎么处理，值班同学不在的时候找谁？",
        "做{}之前需要检查哪些东西？",
        "请说明一下{}和旧流程有什么不同",
    ),
}
ELSEWHERE = {
    "en": ("the coffee machine", "my holiday request", "a meeting room on the third floor"),
    "zh": ("咖啡机", "我的年假申请", "三楼的会议室"),
}


def documents(lang: str, draw: random.Random) -> list[Document]:
    """Documents whose titles and keywords share words but are mostly distinct as keys."""
    joint = "" if lang == "zh" else " "
    phrases = [joint.join(parts) for parts in product(*(part.split() for part in WORDS[lang]))]
    releases = [
        f"{phrase} {major}.{minor}" for phrase in phrases for major in (1, 2) for minor in (0, 1)
    ]
    keys = draw.sample(phrases + releases, KEYS)
    made = []
    for position in range(DOCUMENTS):
        own = keys[position::DOCUMENTS]
        made.append(Document(f"{position}.md", own[0], "", keywords=tuple(own[1:])))
    return made


def queries(lang: str, docs: Sequence[Document], draw: random.Random) -> list[str]:
    """Half of them name a key of some document, half of them none."""
    named = [draw.choice((doc.title, *doc.keywords)) for doc in draw.sample(docs, QUERIES // 2)]
    topics = named + [draw.choice(ELSEWHERE[lang]) for _ in range(QUERIES - len(named))]
    return [draw.choice(SENTENCES[lang]).format(topic) for topic in topics]


def word_character(character: str) -> bool:
    """A letter or digit that needs a boundary."""
    return character.isalnum() and not CJK.match(character)


def naive(query: str, keys: dict[str, list[int]]) -> list[int]:
    """Look for every key in turn, check its ends, keep the longest of what overlaps."""
    text = fold(query)
    found = []
    for key in keys:
        start = text.find(key) if key in text else -1
        while start >= 0:
            end = start + len(key)
            before = start > 0 and word_character(key[0]) and word_character(text[start - 1])
            after = end < len(text) and word_character(key[-1]) and word_character(text[end])
            if not before and not after:
                found.append((start, end, key))
            start = text.find(key, start + 1)
    taken: list[tuple[int, int, str]] = []
    for start, end, key in sorted(found, key=lambda hit: (hit[0] - hit[1], hit[0])):
        if all(end <= other[0] or other[1] <= start for other in taken):
            taken.append((start, end, key))
    return sorted({position for *_, key in taken for position in keys[key]})


def seconds_per_query(find: Callable[[str], object], asked: Sequence[str], times: int) -> float:
    """The mean time of one query."""
    start = time.thread_time()
    for _ in range(times):
        for query in asked:
            find(query)
    return (time.thread_time() - start) / (times * len(asked))


def main() -> None:
    """Print time, ratio and equality for both languages."""
    for lang in ("zh", "en"):
        draw = random.Random(7)
        docs = documents(lang, draw)
        asked = queries(lang, docs, draw)
        start = time.thread_time()
        exact = ExactKeys(docs, L0Settings())
        built = time.thread_time() - start
        keys: dict[str, list[int]] = {}
        for position, doc in enumerate(docs):
            for key in dict.fromkeys(fold(key) for key in (doc.title, *doc.keywords)):
                keys.setdefault(key, []).append(position)
        # Fresh strings lie side by side in memory, which is five times as fast to scan.
        keys = dict(zip("\n".join(keys).split("\n"), keys.values(), strict=True))
        equal = all(exact.matches(query) == naive(query, keys) for query in asked)
        hits = sum(bool(exact.matches(query)) for query in asked)
        rounds = [  # side by side, so that a busy machine slows both
            (
                seconds_per_query(lambda query, keys=keys: naive(query, keys), asked, 1),  # type: ignore[misc]
                seconds_per_query(exact.matches, asked, 400),
            )
            for _ in range(ROUNDS)
        ]
        slow, fast = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratio = statistics.median(slow / fast for slow, fast in rounds)
        print(
            f"{lang}: {len(docs)} documents, {len(keys)} keys, built in {built * 1e3:.0f} ms; "
            f"{hits} of {len(asked)} queries match; naive {slow * 1e3:.2f} ms, "
            f"exact keys {fast * 1e6:.2f} us: {ratio:.0f}x (goal {GOAL}x), "
            f"{'same' if equal else 'DIFFERENT'} result"
        )


if __name__ == "__main__":
    main()
