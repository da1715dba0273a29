"""Reading options: command line over environment over YAML file over default, all by the same names.

The syntax is pflag's, as the Go simulator takes it: `--name value`, `--name=value`, `--flag`, `--flag=false`,
`--no-flag`, and lists that go on until the next flag. A flag of the real vLLM that means nothing here is accepted
with one warning, because manifests for vLLM must start on a simulator; any other unknown flag is an error.
"""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any, NamedTuple

from pointsman.core.documents import read_yaml
from pointsman.core.durations import parse_duration
from pointsman.core.errors import UserError
from pointsman.core.lines import cut
from pointsman.core.numbers import bounded_int, is_count, whole
from pointsman.sim.settings import OPTIONS, Settings, check

_IGNORED = """mm-processor-kwargs ec-transfer-config enforce-eager enable-prefix-caching tensor-parallel-size
    gpu-memory-utilization enable-lora kv-transfer-config kv-events-config dtype kv-cache-dtype trust-remote-code
    pipeline-parallel-size swap-space disable-log-requests disable-log-stats enable-chunked-prefill
    max-lora-rank lora-extra-vocab-size quantization load-format tokenizer tokenizer-mode revision download-dir
    enable-auto-tool-choice tool-call-parser reasoning-parser chat-template uvicorn-log-level api-key
    enable-expert-parallel distributed-executor-backend speculative-config compilation-config limit-mm-per-prompt
    scheduling-policy long-prefill-token-threshold num-scheduler-steps cpu-offload-gb max-seq-len-to-capture
    generation-config override-generation-config hf-overrides enable-log-requests
    data-parallel-address data-parallel-rpc-port data-parallel-size-local data-parallel-backend
    prefix-caching-hash-algo allowed-origins root-path served-model-revision enable-server-load-tracking
    logtostderr vmodule alsologtostderr stderrthreshold log-dir add-dir-header skip-headers"""
_MOST = (1 << 63) - 1
IGNORED = frozenset(_IGNORED.split())


class Options(NamedTuple):
    """What the command line gave."""

    settings: Settings
    verbosity: int
    ignored: tuple[str, ...]


def read(argv: Sequence[str], *, environ: Mapping[str, str], seed: int) -> Options:
    """Return the settings from all sources; `seed` is used where nobody chose one.

    Raises UserError naming the option and the fix.
    """
    given, ignored = split(argv)
    values: dict[str, Any] = {"seed": seed}
    if "config" in given:
        values.update(_from_file(Path(_one("config", given.pop("config")))))
    for option in OPTIONS.values():
        env = option.metadata["env"]
        if env and environ.get(env):
            values[option.name] = environ[env]
    verbosity = _integer("v", _one("v", given.pop("v", ["2"])))
    for name, words in given.items():
        values[OPTIONS[name].name] = convert(name, _joined(name, words))
    return Options(check(Settings(**values)), verbosity, tuple(ignored))


def split(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the words of every known flag, and the names of flags that mean nothing here."""
    given: dict[str, list[str]] = {}
    ignored: list[str] = []
    words: list[str] | None = None
    for word in argv:
        if not (word.startswith("--") or (word[:1] == "-" and word[1:2].isalpha())):
            if words is None:
                raise UserError(f"{word!r} stands alone: every value follows a flag, such as --port 8000")
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name, words = _canonical(name, [value] if equals else [])
        if name in OPTIONS or name in {"config", "v"}:
            given[name] = words
        elif name in IGNORED or name.removeprefix("no-") in IGNORED:
            ignored.append(name)
        else:
            near = difflib.get_close_matches(name, [*OPTIONS, *IGNORED], n=1)
            hint = f": did you mean --{near[0]}" if near else ": see pointsman sim --help"
            raise UserError(f"--{name} is not a flag of the simulator or of vLLM{hint}")
    return given, ignored


def _canonical(name: str, words: list[str]) -> tuple[str, list[str]]:
    name = name.replace("_", "-")
    positive = name.removeprefix("no-")
    if name != positive and positive in OPTIONS and isinstance(OPTIONS[positive].default, bool):
        return positive, ["false"]
    return name, words


def _joined(name: str, words: list[str]) -> Any:
    option = OPTIONS[name]
    if option.metadata["kind"] in {"list", "json-list"}:
        return words
    if not words and isinstance(option.default, bool):
        return "true"
    return _one(name, words)


def _one(name: str, words: list[str]) -> str:
    if len(words) != 1:
        raise UserError(f"--{name} takes one value, it has {len(words)}")
    return words[0]


def _from_file(path: Path) -> dict[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise UserError(f"{path}: the file must be a mapping of flag names to values")
    values = {}
    for key, value in document.items():
        name = str(key).replace("_", "-")
        if name in IGNORED or name == "v":
            continue
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, n=1)
            raise UserError(f"{path}: {key} is unknown{f': did you mean {near[0]}' if near else ''}")
        values[OPTIONS[name].name] = convert(name, value)
    return values


def convert(name: str, value: Any) -> Any:
    """Return a value of the option's type from a flag's word or a document's value.

    Raises UserError naming the option and what it takes.
    """
    option = OPTIONS[name]
    kind, default = option.metadata["kind"], option.default
    if kind in {"list", "json-list"}:
        return _list(name, value, as_json=kind == "json-list")
    if kind == "json":
        return _json(name, value)
    if kind == "duration":
        return _duration(name, value)
    if isinstance(default, bool):
        return _boolean(name, value)
    if isinstance(default, int):
        return _integer(name, value)
    if isinstance(default, float):
        return _number(name, value)
    if isinstance(value, list | dict):
        raise UserError(f"--{name} takes a text")
    return str(value)


def _list(name: str, value: Any, *, as_json: bool) -> tuple[Any, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    if not as_json:
        return tuple(str(item) for item in items)
    found: list[Any] = []
    for item in items:
        parsed = _json(name, item)
        found.extend(parsed if isinstance(parsed, list) else [parsed])
    return tuple(found)


def _json(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_int=bounded_int)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--{name} is not JSON: {error}") from None


def _duration(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"--{name} takes a duration, such as 100ms")
    if not isinstance(value, str) or value.removeprefix("-").isdecimal():
        return _number(name, value) / 1000 or 0.0  # old files write milliseconds as a number
    try:
        return parse_duration(value)
    except UserError as error:
        raise UserError(f"--{name}: {error}") from None


def _boolean(name: str, value: Any) -> bool:
    text = str(value).lower() if isinstance(value, str | bool) or is_count(value) else ""
    if text not in {"true", "false", "1", "0", "t", "f"}:
        raise UserError(f"--{name} takes true or false, not {_shortly(value)}")
    return text in {"true", "1", "t"}


def _integer(name: str, value: Any) -> int:
    number = _number(name, value)
    if number != int(number) or abs(number) > _MOST:
        raise UserError(f"--{name} takes a whole number, not {_shortly(value)}")
    # Not every whole number of 64 bits is a float.
    return value if type(value) is int else exact if (exact := _exact(value)) is not None else int(number)


def _exact(value: Any) -> int | None:
    sign = -1 if str(value).startswith("-") else 1
    found = whole(str(value).removeprefix("-").removeprefix("+"), most=_MOST)
    return None if found is None else sign * found


def _shortly(value: Any) -> str:
    """Return a value for a complaint; of a number that is too long, that it is one."""
    try:
        return cut(repr(value), most=60)
    except ValueError:
        return "one of so many digits"


def _number(name: str, value: Any) -> float:
    try:
        number = float("bool" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"--{name} takes a number, not {_shortly(value)}") from None
    if not math.isfinite(number):
        raise UserError(f"--{name} takes a finite number, not {_shortly(value)}")
    return number


def help_text() -> str:
    """Return the list of flags, one per line, for --help."""
    lines = [
        "Usage: pointsman sim --model NAME [flags]",
        "       pointsman sim record URL --out RUN",
        "       pointsman sim fit RUN… [--out FILE]",
        "",
    ]
    for name, option in OPTIONS.items():
        shown = _shown(option)
        lines.append(f"  --{name:<48} {option.metadata['text']}{f' ({shown})' if shown else ''}")
    lines += ["  --config PATH" + " " * 38 + "YAML file with the same names", "  -v N" + " " * 47 + "log level (2)"]
    return "\n".join(lines) + "\n"


def _shown(option: Field[Any]) -> str:
    default = option.default
    if option.metadata["kind"] == "duration":
        return f"{default:g}s" if default else "0"
    return "" if default in ("", (), None) else str(default)
