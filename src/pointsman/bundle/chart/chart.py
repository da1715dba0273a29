"""A bundle → the files of a Helm chart. Pure: the same bundle gives the same bytes.

Owns the layout. Definitions go to `crds/`, which Helm applies first and never deletes (or to another folder, for those
who apply them themselves); one that needs the release's namespace (a conversion webhook) cannot stand there and goes to
`templates/` with the order to keep it. All else is a template per object. `values.yaml` has what an administrator
changes, and `values.schema.json` refuses the rest.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pointsman.bundle.chart.templating import NAMESPACE, Scheme, homes_of, images_of, templated
from pointsman.bundle.model import Bundle, Object, identity
from pointsman.bundle.render.certificates import CertManager, Issued, OwnCertificates, Serving
from pointsman.bundle.render.objects import InstallOptions, install_order, render
from pointsman.bundle.versions import parse_version
from pointsman.bundle.writer import Action, Template, write_document
from pointsman.core.errors import UserError

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MAX_FILE_NAME = 150
MIRROR = re.compile(r"([a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9._/-]+)?)?")
_KEEP = {"helm.sh/resource-policy": "keep"}
LIST = ".bundle.json"


def make_chart(
    bundle: Bundle,
    options: InstallOptions,
    *,
    name: str = "",
    own_certificates: bool = False,
    images: Mapping[str, str] | None = None,
    keep: Callable[[list[Object]], list[Object]] = list,
    definitions: str = "crds",
) -> dict[str, str]:
    """Return the files of the chart, by path; the namespace of the options is left to Helm.

    `keep` leaves out objects that are not wanted. `images` are names that values.yaml shall have in place of others:
    those with a digest, for those with a tag. `definitions` is the folder that they go to.

    Raises what `render` raises, and UserError for a name that no chart can have.
    """
    chart = name or bundle.package
    if not _NAME.fullmatch(chart):
        raise UserError(
            f"{chart!r} is no name for a chart: say one with --name, of lower case letters, digits, '-', '.'"
        )
    scheme = Scheme(chart, images_of(bundle), homes_of(bundle))
    own = OwnCertificates(lambda serving: _issued_by_helm(serving, chart))
    # A namespace of the options is the name by which targets mean the operator's own.
    targets = [NAMESPACE if each and each == options.namespace else each for each in options.targets or ()]
    certificates = own if own_certificates else options.certificates
    wanted = replace(options, namespace=NAMESPACE, targets=targets, certificates=certificates)
    objects = keep(install_order(render(bundle, wanted)))
    files = dict(_object_file(each, scheme, definitions=definitions) for each in objects)
    files |= {
        "Chart.yaml": write_document(_chart(bundle, chart)),
        "values.yaml": _values({key: (images or {}).get(each, each) for key, each in scheme.images.items()}),
        "values.schema.json": json.dumps(_schema(scheme), indent=2) + "\n",
        "templates/_helpers.tpl": _helpers(chart, own_certificates=own_certificates),
        "templates/NOTES.txt": _notes(bundle, wanted, scheme, definitions=definitions),
        ".helmignore": f"{LIST}\n",
    }
    return dict(sorted(files.items()))


def list_of(files: Iterable[str], bundle: Bundle) -> str:
    """Return the file that remembers what was written, so that the next run removes what is gone and nothing else."""
    return json.dumps({"package": bundle.package, "version": bundle.version, "files": sorted(files)}, indent=2) + "\n"


def _object_file(document: Object, scheme: Scheme, *, definitions: str) -> tuple[str, str]:
    kind, namespace, name = identity(document)
    made = templated(document, scheme)
    if kind == "CustomResourceDefinition":
        if made == document:
            return f"{definitions}/{_file_name(name)}.yaml", write_document(document)
        metadata = made["metadata"]
        made = {**made, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **_KEEP}}}
    place = "" if namespace in {"", NAMESPACE} else f"-{namespace}"
    return f"templates/{_file_name(f'{kind.lower()}-{name}{place}')}.yaml", write_document(made, helm=True)


def _file_name(text: str) -> str:
    """Return a name that a file can have; one that is cut carries a hash, so that no two meet."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text)
    if plain == text and len(text) <= _MAX_FILE_NAME:
        return text
    return f"{plain[:_MAX_FILE_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _chart(bundle: Bundle, name: str) -> Object:
    spec, annotations = bundle.csv.spec, bundle.csv.metadata.annotations
    found: Object = {
        "apiVersion": "v2",
        "name": name,
        "description": annotations.get("description") or f"{spec.display_name or bundle.package}, from its OLM bundle.",
        "type": "application",
        "version": _semantic(bundle.version) or "0.0.0",
        "appVersion": bundle.version or bundle.csv.name,
    }
    if _semantic(spec.min_kube_version):
        found["kubeVersion"] = f">= {_semantic(spec.min_kube_version)}-0"
    return found


def _semantic(text: str) -> str:
    try:
        parse_version(text)
    except UserError:
        return ""
    return text.removeprefix("v")


def _values(images: Mapping[str, str]) -> str:
    parts: tuple[tuple[str, Object], ...] = (
        (
            "Registry, with a path if need be, to pull every image from instead of the one that it names.",
            {"imageMirror": ""},
        ),
        ("Secrets to pull images with, on every ServiceAccount: [{name: pull-secret}].", {"imagePullSecrets": []}),
        ("Every image that the operator runs or hands on.", {"images": dict(images)}),
        ("Nodes that the operator's own Pods may run on, beside what the bundle says.", {"nodeSelector": {}}),
        ("Taints that the operator's own Pods tolerate, beside what the bundle says.", {"tolerations": []}),
    )
    return "\n".join(f"# {comment}\n{write_document(value)}" for comment, value in parts)


def _schema(scheme: Scheme) -> Object:
    text = {"type": "string", "minLength": 1}
    named = {"type": "object", "properties": {"name": text}, "required": ["name"], "additionalProperties": False}
    images = dict.fromkeys(scheme.images, text)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "global": {"type": "object"},
            "imageMirror": {"type": "string", "pattern": f"^{MIRROR.pattern}$"},
            "imagePullSecrets": {"type": "array", "items": named},
            "images": {
                "type": "object",
                "properties": images,
                "required": sorted(images),
                "additionalProperties": False,
            },
            "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
            "tolerations": {"type": "array", "items": {"type": "object"}},
        },
    }


def _issued_by_helm(serving: Serving, chart: str) -> Issued:
    """Return a certificate that Helm makes when it installs, and finds again when it upgrades."""
    root = f'(include "{chart}.certificate" (dict "root" $ "service" "{serving.service}" "secret" "{serving.secret}")'
    place = {
        part: Template((Action(f"{root} | fromJson).{part} | quote"),), quoted=False) for part in ("ca", "crt", "key")
    }
    return Issued(certificate=place["crt"], key=place["key"], authority=place["ca"])


def _helpers(chart: str, *, own_certificates: bool) -> str:
    image = _IMAGE.replace("CHART", chart)
    return image + _CERTIFICATE.replace("CHART", chart) if own_certificates else image


def _notes(bundle: Bundle, options: InstallOptions, scheme: Scheme, *, definitions: str) -> str:
    lines = []
    owned = {each.name for each in bundle.csv.spec.customresourcedefinitions.owned}
    if owned:
        apply = f"kubectl apply --server-side -f {definitions}/"
        lines.append(f"Helm does not upgrade definitions: before an upgrade, {apply}")
    required = sorted({each.name for each in bundle.csv.spec.customresourcedefinitions.required} - owned)
    if required:
        lines.append(f"It needs these definitions, which somebody else installs: {', '.join(required)}")
    if bundle.csv.webhooks and isinstance(options.certificates, CertManager):
        lines.append("Its webhooks get their certificates from cert-manager, which must be there.")
    loose = sorted(name for name, image in scheme.images.items() if "@sha" not in image)
    if loose:
        lines.append(f"These images have a tag and no digest, so they may change: {', '.join(loose)}")
    what = f"{bundle.csv.spec.display_name or bundle.package} {bundle.version}"
    first, *rest = (line.replace("{{", '{{ "{{" }}') for line in (what, *lines))
    return "\n".join([f"{first} runs in {{{{ .Release.Namespace }}}}.", *rest]) + "\n"


_IMAGE = """{{- /* An image by its name in values.yaml, from the mirror if there is one. */}}
{{- define "CHART.image" -}}
{{- $image := index .root.Values.images .name -}}
{{- with .root.Values.imageMirror -}}
{{- . | trimSuffix "/" }}/{{ regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $image "" -}}
{{- else -}}
{{- $image -}}
{{- end -}}
{{- end -}}
"""
_CERTIFICATE = """
{{- /* A certificate for a Service: what its Secret has, or else a new one, the same wherever it is asked for. */}}
{{- define "CHART.certificate" -}}
{{- $values := .root.Values -}}
{{- if not (hasKey $values "certificates") -}}
{{- $_ := set $values "certificates" dict -}}
{{- end -}}
{{- if not (hasKey $values.certificates .secret) -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .secret -}}
{{- if $found -}}
{{- $data := $found.data -}}
{{- $known := dict "ca" (index $data "ca.crt") "crt" (index $data "tls.crt") "key" (index $data "tls.key") -}}
{{- $_ := set $values.certificates .secret $known -}}
{{- else -}}
{{- $short := printf "%s.%s" .service .root.Release.Namespace -}}
{{- $hosts := list $short (printf "%s.svc" $short) (printf "%s.svc.cluster.local" $short) -}}
{{- $ca := genCA "bundle-ca" 3650 -}}
{{- $made := genSignedCert $short nil $hosts 3650 $ca -}}
{{- $new := dict "ca" ($ca.Cert | b64enc) "crt" ($made.Cert | b64enc) "key" ($made.Key | b64enc) -}}
{{- $_ := set $values.certificates .secret $new -}}
{{- end -}}
{{- end -}}
{{- index $values.certificates .secret | toJson -}}
{{- end -}}
"""
