"""A real Kubernetes on this machine: a control plane and three nodes, from Debian 12's packages alone.

Everything of it lives in namespaces: network, processes, mounts and, for each node, its own control groups,
all of them below ``cockpit-k8s``. Nothing of the machine's own is written: no package is installed, no sysctl
set, no interface made outside, and nothing can be reached from inside but the cluster itself. When its first
process ends, in whatever way, the kernel ends all others and unmounts all.

    python -m tests.kube.cluster up     bring it up: half a minute, the first time ten minutes more (build.sh)
    python -m tests.kube.cluster env    what a shell needs: eval "$(python -m tests.kube.cluster env)"
    python -m tests.kube.cluster down

It is Kubernetes 1.20, the only version whose source Debian 12 has: what newer ones added cannot be tried.
There is no DNS and no kube-proxy; pods reach each other by address.
"""
