"""What asking the endpoints about themselves came to, counted by who asked."""

from collections import Counter


class Polls:
    """Answers and failures."""

    def __init__(self) -> None:
        self.poll_errors: Counter[str] = Counter()  # by source
        self.extract_errors: Counter[tuple[str, str]] = Counter()  # by source and extractor
        self.polls: Counter[str] = Counter()  # answers used, by source
