"""What kubectl's words about a failure mean, as 1.20 to 1.32 and the servers of these versions print them.

Each is checked in ``tests/kube/test_words.py`` against the line as it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_SHOWN = 300


@dataclass(frozen=True)
class Meaning:
    """What is wrong.

    :param retry: whether trying again later can help
    :param pod: whether the pod's own state says more
    :param absent: whether the pod is not there
    """

    what: str
    hint: str = ""
    retry: bool = False
    pod: bool = False
    absent: bool = False


_Make = Callable[[re.Match[str]], Meaning]

CONTEXTS = "see: kubectl config get-contexts"
PODS = "see: kubectl get pods"
_SHELL = "cockpit needs /bin/sh and Python 3.8 in the container; name another one: pod/NAME:CONTAINER"


def _forbidden(found: re.Match[str]) -> Meaning:
    user, verb, resource, namespace = found.groups()
    kind, _, part = resource.partition("/")
    where = f" in namespace {namespace}" if namespace else ""
    can = f"kubectl auth can-i {verb} {kind}"
    can += (f" --subresource={part}" if part else "") + (f" -n {namespace}" if namespace else "")
    hint = f"ask for a role with that right; to check: {can}"
    return Meaning(f"forbidden: {user} may not {verb} {resource}{where}", hint)


def _not_found(found: re.Match[str]) -> Meaning:
    kind, _, _ = found[1].partition(".")
    pods = kind == "pods"
    return Meaning(
        f"no {kind.removesuffix('s')} {found[2]}", f"see: kubectl get {kind}", pod=pods, absent=pods
    )


def _refused(found: re.Match[str]) -> Meaning:
    if found[1] == "localhost:8080":  # kubectl's default, where no kubeconfig names a server
        return Meaning("kubectl has no cluster", f"set KUBECONFIG, or give --context; {CONTEXTS}")
    return Meaning(f"API server at {found[1]} does not answer: connection refused", retry=True)


def _unable(found: re.Match[str]) -> Meaning:
    why = found[1][:_SHOWN]
    if "x509" in why or "certificate" in why:
        return Meaning(f"API server is not trusted: {why}", "check the cluster's entry in your kubeconfig")
    if why.startswith("getting credentials"):
        return Meaning(f"no credentials: {why.partition(': ')[2]}", "log in as your cluster asks you to")
    return Meaning(f"API server does not answer: {why}", retry=True)


_TABLE: tuple[tuple[str, _Make], ...] = (
    (
        r'\(Forbidden\): .*?User "([^"]*)" cannot (\w+) resource "([^"]+)"'
        r'(?: in API group "[^"]*")?(?: in the namespace "([^"]*)")?',
        _forbidden,
    ),
    (
        r'admission webhook "([^"]*)" denied the request: (.*)',
        lambda found: Meaning(f"refused by the cluster's {found[1]}: {found[2][:_SHOWN]}"),
    ),
    (r"\(Forbidden\): (.*)", lambda found: Meaning(f"forbidden: {found[1][:_SHOWN]}")),
    (
        r"context was not found for specified context: (.*)",
        lambda found: Meaning(f"no context {found[1]} in your kubeconfig", CONTEXTS),
    ),
    (
        r'context "(.*)" does not exist',
        lambda found: Meaning(f"no context {found[1]} in your kubeconfig", CONTEXTS),
    ),
    (
        r"(?:must be logged in to the server|asked for the client to provide credentials|\(Unauthorized\))",
        lambda _: Meaning(
            "API server does not accept your credentials", "log in again, then try: kubectl get pods"
        ),
    ),
    (
        r"the server doesn't have a resource type \"(.*?)\"",
        lambda found: Meaning(
            f"this cluster has no {found[1]}", "see: kubectl api-resources, or give a label selector"
        ),
    ),
    (r'\(NotFound\): (\S+) "([^"]+)" not found', _not_found),
    (
        r"pod (\S+) does not have a host assigned",
        lambda found: Meaning(f"pod {found[1]} has no node yet", PODS, retry=True, pod=True),
    ),
    (
        r"container (\S+) (?:is not valid for|not found in) pod (\S+)",
        lambda found: Meaning(
            f"pod {found[2]} has no container {found[1]}",
            f"its containers: kubectl get pod {found[2]} -o jsonpath='{{.spec.containers[*].name}}'",
        ),
    ),
    (
        r'unable to upgrade connection: container not found \("([^"]*)"\)',
        lambda found: Meaning(f"container {found[1]} is not running", PODS, retry=True, pod=True),
    ),
    (
        r"in a completed pod; current phase is (\w+)",
        lambda found: Meaning(f"its pod has ended: {found[1]}", PODS, pod=True),
    ),
    (
        r"(?:exec: \"/bin/sh\"|stat /bin/sh|/bin/sh: no such file)",
        lambda _: Meaning("its image has no /bin/sh", _SHELL),
    ),
    (
        r"error dialing backend: (.*)",
        lambda found: Meaning(
            f"the kubelet of its node does not answer: {found[1][:_SHOWN]}",
            "see: kubectl get nodes",
            retry=True,
            pod=True,
        ),
    ),
    (r"connection to the server (\S+) was refused", _refused),
    (r"Unable to connect to the server: (.*)", _unable),
    (
        r"unable to upgrade connection: (.*)",
        lambda found: Meaning(f"exec was refused: {found[1][:_SHOWN]}", PODS, retry=True, pod=True),
    ),
    (
        r"Error from server(?: \((\w+)\))?: (.*)",
        lambda found: Meaning(f"API server: {found[2][:_SHOWN]}", retry=True, pod=True),
    ),
    # klog's lines begin with severity and date; what kubectl itself says at its end does not.
    (r"^error: (.*)", lambda found: Meaning(f"kubectl: {found[1][:_SHOWN]}", retry=True, pod=True)),
)

_MEANINGS = [(re.compile(pattern, re.MULTILINE), make) for pattern, make in _TABLE]


def meaning(said: str) -> Meaning | None:
    """What is wrong; None: nothing that kubectl says, the command that it ran has just ended.

    :param said: the end of what it wrote to stderr
    """
    for pattern, make in _MEANINGS:
        found = pattern.search(said)
        if found is not None:
            return make(found)
    return None
