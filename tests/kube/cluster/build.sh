#!/bin/bash
# Builds what a Kubernetes control plane needs, once, from Debian 12's packages and nothing else.
#
#   bash tests/kube/cluster/build.sh
#
# Debian ships no server binaries, but the source package `kubernetes` holds upstream's whole tree with vendor/.
# Packages are downloaded and unpacked, never installed: no daemon of etcd or containerd starts, and nothing
# outside $COCKPIT_K8S_CACHE (default ~/.cache/cockpit-k8s, 1 GB once built) is written. Needs apt and dpkg-dev.
set -euo pipefail
CACHE=${COCKPIT_K8S_CACHE:-$HOME/.cache/cockpit-k8s}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PARTS="kube-apiserver kube-controller-manager kube-scheduler kubelet"
STAMP=$CACHE/built
[ -e "$STAMP" ] && cmp -s "$STAMP" "${BASH_SOURCE[0]}" && exit 0
mkdir -p "$CACHE/apt/lists/partial" "$CACHE/apt/archives/partial" "$CACHE/bin" "$CACHE/root"
cd "$CACHE"

# Lists of our own, so that /etc/apt and /var/lib/apt stay as they are.
cat >apt/sources.list <<'LIST'
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
LIST
apt() {
  apt-get -q -o Dir::Etc::sourcelist="$CACHE/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$CACHE/apt/lists" -o Dir::Cache::archives="$CACHE/apt/archives" \
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root "$@"
}
apt update

echo "build: unpacking etcd, containerd, runc, CNI plugins, kubectl and Go"
(cd apt/archives && apt download etcd-server containerd runc libseccomp2 containernetworking-plugins \
  kubernetes-client golang-1.19-go golang-1.19-src)
for package in apt/archives/*.deb; do dpkg -x "$package" root; done

echo "build: the source of kubernetes"
rm -rf source go && mkdir -p source go/src/k8s.io
(cd source && apt source kubernetes)
tree=$(find "$CACHE/source" -maxdepth 1 -type d -name 'kubernetes-*')
ln -sfn "$tree" go/src/k8s.io/kubernetes
# Even with -tags providerless kubelet asks for credentials of clouds, over the network, at every start.
sed -i '\#credentialprovider/#d' "$tree/cmd/kubelet/app/plugins.go"

export GOROOT=$CACHE/root/usr/lib/go-1.19 GOPATH=$CACHE/go GO111MODULE=off GOPROXY=off GOFLAGS= \
  GOCACHE=$CACHE/gocache CGO_ENABLED=0
echo "build: pause"
cat >"$CACHE/pause.go" <<'GO'
package main

import (
    "os"
    "os/signal"
    "syscall"
)

func main() {
    end := make(chan os.Signal, 1)
    signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
    <-end
}
GO
nice -n 19 "$GOROOT/bin/go" build -ldflags "-s -w" -o "$CACHE/bin/pause" "$CACHE/pause.go"
cd go/src/k8s.io/kubernetes
echo "build: the API's description, which the source package leaves out"
nice -n 19 "$GOROOT/bin/go" build -o "$CACHE/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
tagged=$(grep -rl --include='*.go' --exclude='*_test.go' '+k8s:openapi-gen=' cmd pkg staging/src/k8s.io |
  grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n 1 dirname | sort -u |
  sed 's#^staging/src/#vendor/#; s#^#k8s.io/kubernetes/#' | paste -sd,)
PATH=$GOROOT/bin:$PATH nice -n 19 "$CACHE/bin/openapi-gen" -i "$tagged" -r /dev/null -o "$GOPATH/src" \
  -h hack/boilerplate/boilerplate.generatego.txt -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi

version=k8s.io/kubernetes/vendor/k8s.io/component-base/version
echo "build: $PARTS"
nice -n 19 "$GOROOT/bin/go" build -tags providerless -o "$CACHE/bin/" \
  -ldflags "-s -w -X $version.gitVersion=v1.20.2 -X $version.gitMajor=1 -X $version.gitMinor=20" \
  $(printf './cmd/%s ' $PARTS)
cd "$CACHE" && rm -rf gocache
cp "$HERE/build.sh" "$STAMP"
