"""LangChain's structured output, by each of its methods: run by the Python that has it, with the URL of a simulator.

    python -m tests.sim.langchain_client URL

Prints what class came out of each.
"""

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]  # lives in the environment of bench.clients
from tests.sim.trains import Departure, Train


def main(url: str) -> None:
    model = ChatOpenAI(model="test-model", base_url=url, api_key="none", max_retries=0)
    # as a function LangChain sends `{}`, which anything fits, where a model holds itself
    wanted: dict[str, Any] = {"json_schema": Train, "function_calling": Departure, "json_mode": None}
    found: dict[str, set[str]] = {method: set() for method in wanted}
    for method, shape in wanted.items():
        asked = model.with_structured_output(shape, method=method)
        for number in range(5):
            found[method].add(type(asked.invoke(f"train {number}, as json")).__name__)
    sys.stdout.write(json.dumps({method: sorted(names) for method, names in found.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
