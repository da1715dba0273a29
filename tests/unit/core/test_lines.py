"""A log line is bounded, harmless to a terminal, and nobody fails because it cannot be written."""

import errno
import io

from pointsman.core.lines import Bounded, Lines, cut


class Full(io.StringIO):
    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    file = Full()
    lines = Lines(file)
    lines.add("one")
    lines.add("two")
    file.full = False
    lines.add("three")
    lines.add("four")
    assert file.getvalue().splitlines() == ["three", "2 log lines before this one could not be written", "four"]
    file.close()
    lines.add("five")
    Lines(None).add("six")


def test_long_texts_are_cut_except_where_their_writer_did() -> None:
    assert cut("a" * 2000) == "a" * 1000 + "… (2000 characters)"
    assert cut("a\nb") == "a\\nb"
    assert isinstance(Bounded("x"), str)
