"""What kubectl prints where something is wrong, in cockpit's words."""

from __future__ import annotations

import pytest

from cockpit.kube.kubectl_errors import meaning

REFUSED = "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?"
KLOG = (
    'E1129 09:26:58.639161    3233 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API '
    'group list: Get \\"https://10.0.0.1:6443/api?timeout=32s\\": dial tcp 10.0.0.1:6443: connect: refused"\n'
)


@pytest.mark.parametrize(
    ("said", "what", "hint", "retry"),
    [
        (  # 1.32 and 1.20 alike
            "Error in configuration: context was not found for specified context: nope",
            "no context nope in your kubeconfig",
            "get-contexts",
            False,
        ),
        ('error: context "nope" does not exist', "no context nope in your kubeconfig", "get-contexts", False),
        (
            'Error from server (Forbidden): pods "train-0" is forbidden: User "ada" cannot create resource '
            '"pods/exec" in API group "" in the namespace "ml"',
            "forbidden: ada may not create pods/exec in namespace ml",
            "kubectl auth can-i create pods --subresource=exec -n ml",
            False,
        ),
        (
            'Error from server (Forbidden): pods is forbidden: User "serviceaccount:bob" cannot list '
            'resource "pods" in API group "" in the namespace "kube-system"',
            "forbidden: serviceaccount:bob may not list pods in namespace kube-system",
            "kubectl auth can-i list pods -n kube-system",
            False,
        ),
        (
            'Error from server (Forbidden): admission webhook "no-exec.site" denied the request: no',
            "refused by the cluster's no-exec.site: no",
            "",
            False,
        ),
        ('Error from server (NotFound): pods "gone" not found', "no pod gone", "kubectl get pods", False),
        (
            'Error from server (NotFound): statefulsets.apps "idle" not found',
            "no statefulset idle",
            "kubectl get statefulsets",
            False,
        ),
        (
            "Error from server (BadRequest): pod train-1 does not have a host assigned",
            "pod train-1 has no node yet",
            "",
            True,
        ),
        (
            "Error from server (BadRequest): container side is not valid for pod train-0",
            "pod train-0 has no container side",
            "kubectl get pod train-0",
            False,
        ),
        ("error: container side not found in pod train-0", "pod train-0 has no container side", "", False),
        (
            'error: unable to upgrade connection: container not found ("main")',
            "container main is not running",
            "",
            True,
        ),
        (
            "error: cannot exec into a container in a completed pod; current phase is Succeeded",
            "its pod has ended: Succeeded",
            "",
            False,
        ),
        (
            "error: Internal error occurred: error executing command in container: "
            "OCI runtime exec failed: exec failed: unable to start container process: "
            'exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown',
            "its image has no /bin/sh",
            "pod/NAME:CONTAINER",
            False,
        ),
        (
            "OCI runtime exec failed: exec failed: container_linux.go:380: starting process caused: "
            'exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown\n'
            "command terminated with exit code 126",
            "its image has no /bin/sh",
            "",
            False,
        ),
        (
            "Error from server: error dialing backend: dial tcp 10.0.0.7:10250: connect: connection refused",
            "the kubelet of its node does not answer: dial tcp 10.0.0.7:10250: connect: connection refused",
            "kubectl get nodes",
            True,
        ),
        (KLOG + REFUSED, "API server at 10.0.0.1:6443 does not answer: connection refused", "", True),
        (REFUSED.replace("10.0.0.1:6443", "localhost:8080"), "kubectl has no cluster", "KUBECONFIG", False),
        (
            "Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout",
            "API server does not answer: dial tcp 10.0.0.1:6443: i/o timeout",
            "",
            True,
        ),
        (
            "Unable to connect to the server: tls: failed to verify certificate: x509: signed by "
            "unknown authority",
            "API server is not trusted: tls: failed to verify certificate: x509: signed by unknown authority",
            "kubeconfig",
            False,
        ),
        (
            "Unable to connect to the server: getting credentials: exec: executable aws not found",
            "no credentials: exec: executable aws not found",
            "log in",
            False,
        ),
        (
            "error: You must be logged in to the server (Unauthorized)",
            "API server does not accept your credentials",
            "log in",
            False,
        ),
        (
            'error: the server doesn\'t have a resource type "jobset"',
            "this cluster has no jobset",
            "label selector",
            False,
        ),
        (
            "error: unable to upgrade connection: Forbidden (user=kubelet, verb=create, resource=nodes)",
            "exec was refused: Forbidden (user=kubelet, verb=create, resource=nodes)",
            "",
            True,
        ),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
            "API server: the server is currently unable to handle the request",
            "",
            True,
        ),
        (
            "error: error reading from error stream: websocket: close 1006 (abnormal closure): EOF",
            "kubectl: error reading from error stream: websocket: close 1006 (abnormal closure): EOF",
            "",
            True,
        ),
    ],
)
def test_one_line_says_what_is_wrong_and_what_to_type(
    said: str, what: str, hint: str, *, retry: bool
) -> None:
    meant = meaning(said)
    assert meant is not None
    assert meant.what == what
    assert hint in meant.hint
    assert meant.retry == retry


@pytest.mark.parametrize(
    "said",
    [
        "",
        "command terminated with exit code 137",
        'Defaulted container "main" out of: main, side',
        "Traceback (most recent call last):\nMemoryError",
        "cockpit: error: of a program, in the middle of a line",
    ],
)
def test_the_end_of_a_command_is_no_failure_of_kubectl(said: str) -> None:
    assert meaning(said) is None


def test_a_line_that_a_container_makes_endless_is_cut() -> None:
    meant = meaning("error: " + "x" * 100_000)
    assert meant is not None
    assert len(meant.what) < 400
