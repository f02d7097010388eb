"""The running tool over its database: documents in and out, tool calls, records, the map."""

from kbeval.service.degraded import DegradedField, degraded_fields
from kbeval.service.opening import open_for_use, open_service
from kbeval.service.running import KnowledgeService
from kbeval.service.upload import Upload

__all__ = [
    "DegradedField",
    "KnowledgeService",
    "Upload",
    "degraded_fields",
    "open_for_use",
    "open_service",
]
