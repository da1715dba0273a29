"""Structured logs: one line per event, JSON where a machine reads, key=value where a person does.

Level numbers are klog's, as every llm-d component takes them (`-v 2` default, 3 verbose, 4 debug, 5 trace). Nothing
in a request's path logs at level 2; a log call that is filtered out costs one comparison.
"""

import logging
import sys
from typing import Any, Literal

import structlog

Encoding = Literal["json", "console"]


def configure_logs(*, verbosity: int = 2, encoding: Encoding = "console") -> None:
    """Set up structlog for the process; called once by a command before it starts anything."""
    level = logging.WARNING if verbosity < 1 else logging.INFO if verbosity < 4 else logging.DEBUG
    tail: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if encoding == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *tail,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> Any:
    """Return a logger that carries its module's name."""
    return structlog.get_logger(module=name)
