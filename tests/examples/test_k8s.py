"""The objects of ``examples/k8s`` are what the page about Kubernetes says of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.examples.test_examples import EXAMPLES
from tests.needs import require_module


@pytest.mark.parametrize(("file", "kind"), [("idle.yaml", "StatefulSet"), ("job.yaml", "Job")])
def test_pods_have_a_name_that_others_resolve_and_may_be_traced(file: str, kind: str) -> None:
    require_module("yaml")
    import yaml

    service, owner = yaml.safe_load_all((EXAMPLES / "k8s" / file).read_text())
    assert (service["kind"], owner["kind"]) == ("Service", kind)
    made: dict[str, Any] = owner["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["name"] in (owner["spec"].get("serviceName"), made.get("subdomain"))
    (container,) = made["containers"]
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    assert "cockpit" not in str(owner), "nothing of it is needed in the cluster"
