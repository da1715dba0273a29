"""A Status document becomes the class that says what to do."""

import pytest

from pointsman.kube import errors


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, errors.Invalid),
        (401, errors.Forbidden),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Stale),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (500, errors.ApiError),
        (503, errors.ApiError),
    ],
)
def test_class_by_code(code: int, expected: type[errors.ApiError]) -> None:
    error = errors.from_status({"code": code, "message": "no", "reason": "Because"}, code=999)
    assert type(error) is expected
    assert (str(error), error.code, error.reason) == ("no", code, "Because")


def test_an_answer_that_is_no_status_still_says_something() -> None:
    error = errors.from_status({}, code=502, retry_after=3.0)
    assert str(error) == "the API server answered 502"
    assert error.retry_after == 3.0


def test_conflict_names_the_object_and_its_holder() -> None:
    error = errors.Conflict("services a/b", holder="helm")
    assert str(error) == "services a/b exists and belongs to helm: rename ours, or delete that one"
