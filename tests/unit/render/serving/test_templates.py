import time
from typing import Any

import pytest

from pointsman.render.serving.templates import TemplateError, expand, expanded

CONTEXT: dict[str, Any] = {
    "ObjectMeta": {"name": "phi3", "namespace": "models"},
    "Spec": {"model": {"name": "m"}, "parallelism": {"tensor": 2, "dataRPCPort": 0, "expert": True}},
    "GlobalConfig": {"EnableTLS": False},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("/{{ .ObjectMeta.Namespace }}/{{.ObjectMeta.Name}}/v1", "/models/phi3/v1"),
        ("{{ ChildName .ObjectMeta.Name `-epp-service` }}", "phi3-epp-service"),
        ('{{ ChildName "a" "-b" }}', "a-b"),
        ("{{ or .Spec.Parallelism.DataLocal 1 }}", "1"),
        ("{{ if .Spec.Parallelism.DataRPCPort }}x{{ else }}5555{{- end }}", "5555"),
        ("a {{- if .Spec.Parallelism.Tensor }} --t {{ .Spec.Parallelism.Tensor }} {{- end }} b", "a --t 2 b"),
        ("{{ if .GlobalConfig.EnableTLS }}--secure-serving{{ end }}", ""),
        ("{{ if .A.B }}{{ .A.B }}{{ else }}{{ if .Spec.Model.Name }}n{{ end }}{{ end }}", "n"),
        ("{{ if .No }}{{ if .Spec.Model }}x{{ else }}y{{ end }}{{ end }}z", "z"),
        ("{{ if not .No }}a{{ end }}{{ if eq .Spec.Model.Name `m` }}b{{ end }}", "ab"),
        ("x {{- .Spec.Parallelism.Expert -}} \n y", "xtruey"),
    ],
)
def test_what_presets_say(text: str, expected: str) -> None:
    assert expand(text, CONTEXT, path="f") == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{{ .Spec.Nothing }}", "f: .Spec.Nothing is not set"),
        ("{{ .Spec.Model }}", "f: .Spec.Model is no single value"),
        ("{{ if .A }}", "f: an if has no end"),
        ("{{ end }}", "f: end has no if"),
        ("{{ else }}", "f: else has no if"),
        ("{{ a", "f: a {{ has no }}"),
        ("{{ }}", "says nothing"),
        ("{{ printf `a` }}", "is not understood: there are ChildName"),
        ("{{ kvTransferConfig }}", "is not understood"),
        ("{{ ChildName ² `a` }}", "is not understood"),
        ("{{ ChildName --5 `a` }}", "is not understood"),
        ("{{ ChildName .ObjectMeta.Name }}", "f: ChildName takes a name"),
        ("{{ if .A }}" * 30, "more than 20 conditions"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(TemplateError) as error:
        expand(text, CONTEXT, path="f")
    assert sentence in str(error.value)


def test_fields_are_named_by_their_path() -> None:
    with pytest.raises(TemplateError, match=r"^spec.a\[1\].b: .X is not set"):
        expanded({"a": ["", {"b": "{{ .X }}"}]}, CONTEXT)


@pytest.mark.parametrize("text", ["{{" * 50_000, "{{ .A }}" * 20_000, "{{ if .A }}{{ end }}" * 10_000, "`" * 100_000])
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    try:
        expand(text, CONTEXT | {"A": "a"}, path="f")
    except TemplateError:
        pass
    assert time.process_time() - began < 5
