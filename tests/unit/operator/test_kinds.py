"""The operator's kinds are those that a stack is rendered to."""

from tests.unit.render.stacks import CASES

from pointsman.operator.kinds import MADE


def test_whatever_is_rendered_is_made_and_whatever_is_made_is_rendered() -> None:
    rendered = {(one["apiVersion"], one["kind"]) for case in CASES for one in case.render().objects}
    assert rendered == {(kind.api_version, kind.kind) for kind in MADE}


def test_what_others_need_is_made_first() -> None:
    order = [kind.kind for kind in MADE]
    assert order.index("ServiceAccount") < order.index("RoleBinding") < order.index("Deployment")
    assert order.index("ConfigMap") < order.index("Deployment")
