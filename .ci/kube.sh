#!/usr/bin/env bash
# Real Kubernetes member clusters for tests: on this machine only, on free ports, without root's rights.
#
#   kube.sh build                   kube-apiserver and what belongs to it into $KUBE_HOME/$KUBE_VERSION; once, 6 to 15
#                                   minutes of processor time; ends with 3 when this machine cannot
#   kube.sh version                 the version that `start` uses; ends with 3 where none is built
#   kube.sh start [N]               N clusters (1): an API server and a controller manager each; 3 without the binaries
#   kube.sh stop                    whatever was started in the folder
#   kube.sh kill | freeze | thaw | restart I      the API server of cluster I (1..N)
#   kube.sh nodes COUNT             COUNT nodes with 4 CPU and 16 GiB on every cluster
#
# KUBE_VERSION chooses the version: 1.20.2 is built from the sources of Debian bookworm, any other one from Go modules.
# Without it, `build` builds a current one where Go is new enough, and `start` uses the newest that is built.
#
# Cluster I has its files in $S/cI: kubeconfig (token), kubeconfig.cert (client certificate), ca.crt, token, server,
# api.log. All share one etcd; each has its own CA, keys and administrator. SCHEDULER=1 starts schedulers, too.
set -euo pipefail

KUBE_HOME=${KUBE_HOME:-${HOME:-/tmp}/.cache/fleetui/kube}
S=${S:-${TMPDIR:-/tmp}/fleetui-kube}
CURRENT=1.35.4
CURRENT_GO=1.25
OLDEST=1.20.2
CONTROLLERS=deployment,replicaset,statefulset,daemonset,job,cronjob,namespace,garbagecollector,disruption,endpoint
CONTROLLERS=$CONTROLLERS,endpointslice,pvc-protection,persistentvolume-binder,serviceaccount,serviceaccount-token
CONTROLLERS=$CONTROLLERS,ttl-after-finished
if [ -f "$S/ports" ]; then
    . "$S/ports"
fi

fail() {
    echo "kube.sh: $1" >&2
    exit "${2:-1}"
}

newest_built() {
    local found
    found=$(cd "$KUBE_HOME" 2>/dev/null && compgen -G '*.*/kubectl' | sort -V | tail -1)
    echo "${found%/kubectl}"
}

VERSION=${KUBE_VERSION:-$(newest_built)}
BIN=$KUBE_HOME/${VERSION:-none}
# Only the old version serves without TLS unless it is told not to.
NO_INSECURE_PORT=()
if [ "$VERSION" = "$OLDEST" ]; then
    NO_INSECURE_PORT=(--port=0)
fi

version() {
    [ -x "$BIN/kube-apiserver" ] || fail "no binaries in $BIN; build them with: make kube" 3
    echo "$VERSION"
}

# --- build ---------------------------------------------------------------------------------------

go_is_new_enough() {
    local version
    version=$(go env GOVERSION 2>/dev/null) &&
        [ "$(printf '%s\n' "$CURRENT_GO" "${version#go}" | sort -V | head -1)" = "$CURRENT_GO" ]
}

build() {
    local version=${KUBE_VERSION:-}
    if [ -z "$version" ]; then
        version=$OLDEST
        if go_is_new_enough; then version=$CURRENT; fi
    fi
    if [ -x "$KUBE_HOME/$version/kubectl" ]; then
        echo "Kubernetes $version is built: $KUBE_HOME/$version"
        return
    fi
    mkdir -p "$KUBE_HOME"
    exec 9>"$KUBE_HOME/lock"
    flock -n 9 || fail "another build is running" 3
    # Always the same folder, and Go's cache stays when a build is stopped: the next one continues with it.
    local work=$KUBE_HOME/build
    remove_folder "$work"
    mkdir -p "$work/bin"
    export GOCACHE=$KUBE_HOME/gocache CGO_ENABLED=0
    if [ "$version" = "$OLDEST" ]; then
        echo "Building Kubernetes $version from the sources of Debian bookworm"
        build_from_debian "$work"
    else
        echo "Building Kubernetes $version from Go modules with $(go env GOVERSION)"
        build_from_modules "$work" "$version"
    fi
    # In one step, so that a build that was stopped leaves no half of it.
    rm -rf "${KUBE_HOME:?}/$version"
    mv "$work/bin" "$KUBE_HOME/$version"
    cd /
    remove_folder "$work"
    remove_folder "$KUBE_HOME/gocache"
    remove_folder "$KUBE_HOME/modules"
}

# Go's cache of modules has no write permissions.
remove_folder() {
    [ ! -d "$1" ] || chmod -R u+w "$1"
    rm -rf "$1"
}

# Reported by the API server and by kubectl; without it both say that they have no version.
version_flags() {
    local version=$1 prefix=${2:-} module minor
    minor=${version#1.}
    for module in component-base/version client-go/pkg/version; do
        printf ' -X %sk8s.io/%s.gitVersion=v%s' "$prefix" "$module" "$version"
        printf ' -X %sk8s.io/%s.gitMajor=1 -X %sk8s.io/%s.gitMinor=%s' "$prefix" "$module" "$prefix" "$module" "${minor%%.*}"
    done
}

# Kubernetes replaces its staging modules by folders that its own module does not carry: their releases have the same
# content.
build_from_modules() {
    local work=$1 version=$2 described module etcd
    go_is_new_enough || fail "Kubernetes $version is built with Go $CURRENT_GO or newer" 3
    export GOFLAGS=-mod=mod GO111MODULE=on GOMODCACHE=$KUBE_HOME/modules
    mkdir "$work/module"
    cd "$work/module"
    go mod init kube.test/servers 2>/dev/null
    described=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    [ -n "$described" ] || fail "there is no module k8s.io/kubernetes of version $version" 3
    grep '^go ' "$described" | while read -r _ language; do go mod edit -go="$language"; done
    grep '^godebug ' "$described" >>go.mod || true
    for module in $(sed -n 's#.*\(k8s.io/[a-z-]*\) => ./staging/.*#\1#p' "$described"); do
        go mod edit -replace "$module=$module@v0.${version#1.}"
    done
    etcd=$(sed -n 's#.*\(go.etcd.io/etcd/server/v3\) \(v[^ ]*\).*#\1@\2#p' "$described")
    go mod edit -require "k8s.io/kubernetes@v$version" -require "$etcd"
    go build -ldflags "-s -w$(version_flags "$version")" -o "$work/bin/" k8s.io/kubernetes/cmd/kube-apiserver \
        k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubectl
    go build -ldflags "-s -w" -o "$work/bin/etcd" go.etcd.io/etcd/server/v3
}

# The Go of Debian bookworm, 1.19, is the newest that is known to build this version.
build_from_debian() {
    local work=$1
    if ! grep -q bookworm /etc/os-release 2>/dev/null || ! command -v apt-get >/dev/null; then
        fail "Kubernetes $OLDEST is built from the source package of Debian bookworm" 3
    fi
    local programs="golang-go etcd-server jq rsync dpkg-dev openssl"
    # shellcheck disable=SC2086
    if ! dpkg -s $programs >/dev/null 2>&1; then
        [ "$(id -u)" -eq 0 ] || fail "please install: $programs" 3
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends $programs >/dev/null ||
            fail "could not install $programs" 3
    fi
    fetch_source "$work"
    cd "$work/gopath/src/k8s.io/kubernetes"
    export PATH=/usr/lib/go-1.19/bin:$PATH GOPATH=$work/gopath GO111MODULE=off GOFLAGS=""
    generate_openapi "$work"
    repair_vendored
    go build -ldflags "-s -w$(version_flags "$OLDEST" k8s.io/kubernetes/vendor/)" -o "$work/bin/" \
        ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler ./cmd/kubectl
    ln -s "$(command -v etcd)" "$work/bin/etcd"
}

fetch_source() {
    mkdir -p "$1/lists" "$1/gopath/src/k8s.io"
    cd "$1"
    if [ -f /etc/apt/sources.list.d/debian.sources ]; then
        sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >sources.sources
    else
        sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >sources.list
    fi
    local options=(-qq -o "Dir::Etc::sourcelist=$(echo "$1"/sources.*s*)" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$1/lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >/dev/null
    apt-get "${options[@]}" source kubernetes >/dev/null 2>&1
    mv kubernetes-1.20* gopath/src/k8s.io/kubernetes
}

# The one generated file that the source package lacks.
generate_openapi() {
    go build -o "$1/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    local packages
    packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=true' pkg staging/src/k8s.io |
        grep -v -e _test.go -e zz_generated -e code-generator/ -e sample-apiserver/ | xargs -n1 dirname | sort -u |
        sed -e 's#^staging/src/#vendor/#' -e 's#^#k8s.io/kubernetes/#' | paste -sd,)
    "$1/openapi-gen" --logtostderr --go-header-file hack/boilerplate/boilerplate.generatego.txt \
        -O zz_generated.openapi -p k8s.io/kubernetes/pkg/generated/openapi -i "$packages" \
        -r "$1/violations.txt" --output-base "$GOPATH/src"
}

# Two libraries of 2020 do not work with Go 1.18 and newer; an assertion stops the build if a source is another.
repair_vendored() {
    python3 - vendor <<'END'
import pathlib, re, sys
vendor = pathlib.Path(sys.argv[1])

# reflect2 1.0.1 reads Go's map iterator wrongly: the server crashes when it writes a custom resource.
link, maps = (vendor / "github.com/modern-go/reflect2" / name for name in ("unsafe_link.go", "unsafe_map.go"))
text = link.read_text().replace(
    "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter",
    "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)")
text = re.sub(r"type hiter struct \{.*?\n\}", """type hiter struct {
	key, value, t, h, buckets, bptr unsafe.Pointer
	overflow, oldoverflow *[]unsafe.Pointer
	startBucket uintptr
	offset uint8
	wrapped bool
	B, i uint8
	bucket, checkBucket uintptr
}""", text, flags=re.S)
code = maps.read_text().replace(
    "\treturn &UnsafeMapIterator{\n\t\thiter:      mapiterinit(type2.rtype, *(*unsafe.Pointer)(obj)),",
    "\tit := &hiter{}\n\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)\n"
    "\treturn &UnsafeMapIterator{\n\t\thiter:      it,")
assert "it *hiter)" in text and "checkBucket uintptr\n}" in text and "it := &hiter{}" in code
link.write_text(text)
maps.write_text(code)

# The validator of custom resources takes an empty string for null and refuses it in typed fields.
kinds = vendor / "k8s.io/kube-openapi/pkg/validation/validate/type.go"
was = "if data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data)) {"
text = kinds.read_text()
assert text.count(was) == 1
kinds.write_text(text.replace(was, "if data == nil {"))
END
}

# --- start and stop ------------------------------------------------------------------------------

choose_ports() {
    python3 - "$1" >"$S/ports" <<'END'
import socket, sys
names = ["ETCD_PORT", "ETCD_PEER_PORT", *(f"PORT_{i}" for i in range(1, int(sys.argv[1]) + 1))]
sockets = [(name, socket.create_server(("127.0.0.1", 0))) for name in names]
print(*(f"{name}={opened.getsockname()[1]}" for name, opened in sockets), sep="\n")
END
    echo "COUNT=$1" >>"$S/ports"
    . "$S/ports"
}

# In a session of its own, so that an interrupt of the tests does not end it before `stop`.
background() {
    local pid_file=$1 log=$2
    shift 2
    setsid "$@" >>"$log" 2>&1 </dev/null &
    echo $! >"$pid_file"
}

signed_pair() {
    local folder=$1 name=$2 subject=$3 names=${4:-}
    openssl req -newkey rsa:2048 -nodes -keyout "$folder/$name.key" -subj "$subject" -out "$folder/$name.csr" 2>/dev/null
    openssl x509 -req -in "$folder/$name.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days 30 \
        -out "$folder/$name.crt" ${names:+-extfile <(printf 'subjectAltName=%s' "$names")} 2>/dev/null
    rm "$folder/$name.csr"
}

write_kubeconfig() {
    cat >"$1" <<END
apiVersion: v1
kind: Config
current-context: member
contexts: [{name: member, context: {cluster: member, user: admin}}]
clusters: [{name: member, cluster: {server: "$2", certificate-authority-data: $(base64 -w0 "$3/ca.crt")}}]
users: [{name: admin, user: {$4}}]
END
}

create_files() {
    local folder=$S/c$1 port=PORT_$1 token
    mkdir -p "$folder"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$folder/ca.key" -subj "/CN=member-ca-$1" -days 30 \
        -out "$folder/ca.crt" 2>/dev/null
    signed_pair "$folder" server /CN=kube-apiserver "IP:127.0.0.1,DNS:localhost,DNS:member-$1.test,IP:10.96.0.1"
    signed_pair "$folder" admin /O=system:masters/CN=admin-cert
    openssl genrsa -out "$folder/sa.key" 2048 2>/dev/null
    openssl rsa -in "$folder/sa.key" -pubout -out "$folder/sa.pub" 2>/dev/null
    token=$(openssl rand -hex 16)
    echo "$token" >"$folder/token"
    echo "$token,admin,1,system:masters" >"$folder/tokens.csv"
    echo "https://127.0.0.1:${!port}" >"$folder/server"
    chmod 600 "$folder"/*.key "$folder"/token*
    write_kubeconfig "$folder/kubeconfig" "$(cat "$folder/server")" "$folder" "token: $token"
    write_kubeconfig "$folder/kubeconfig.cert" "$(cat "$folder/server")" "$folder" \
        "client-certificate-data: $(base64 -w0 "$folder/admin.crt"), client-key-data: $(base64 -w0 "$folder/admin.key")"
}

start_api_server() {
    local folder=$S/c$1 port=PORT_$1
    background "$folder/api.pid" "$folder/api.log" "$BIN/kube-apiserver" \
        --etcd-servers="http://127.0.0.1:$ETCD_PORT" --etcd-prefix="/c$1" \
        --bind-address=127.0.0.1 --secure-port="${!port}" \
        --tls-cert-file="$folder/server.crt" --tls-private-key-file="$folder/server.key" \
        --client-ca-file="$folder/ca.crt" --token-auth-file="$folder/tokens.csv" --authorization-mode=RBAC \
        --service-account-issuer="https://member-$1.test" --service-account-key-file="$folder/sa.pub" \
        --service-account-signing-key-file="$folder/sa.key" --service-cluster-ip-range=10.96.0.0/24 \
        --disable-admission-plugins=ServiceAccount
}

start_controllers() {
    local folder=$S/c$1
    background "$folder/controllers.pid" "$folder/controllers.log" "$BIN/kube-controller-manager" \
        --kubeconfig="$folder/kubeconfig" --service-account-private-key-file="$folder/sa.key" --leader-elect=false \
        --controllers="$CONTROLLERS" --secure-port=0 "${NO_INSECURE_PORT[@]}"
    if [ "${SCHEDULER:-0}" = 1 ]; then
        background "$folder/scheduler.pid" "$folder/scheduler.log" "$BIN/kube-scheduler" \
            --kubeconfig="$folder/kubeconfig" --leader-elect=false --secure-port=0 "${NO_INSECURE_PORT[@]}"
    fi
}

await_ready() {
    local _
    for _ in $(seq 300); do
        if "$BIN/kubectl" --kubeconfig "$S/c$1/kubeconfig" get --raw /readyz >/dev/null 2>&1; then
            return
        fi
        sleep 0.2
    done
    fail "cluster $1 did not come up; see $S/c$1/api.log"
}

start() {
    local count=${1:-1} i
    version >/dev/null
    command -v openssl >/dev/null || fail "openssl is not installed" 3
    stop
    rm -rf "$S"
    mkdir -p "$S"
    chmod 700 "$S"
    choose_ports "$count"
    # Nothing has to survive a crash here, so nothing waits for the disk.
    background "$S/etcd.pid" "$S/etcd.log" "$BIN/etcd" --data-dir "$S/etcd" --unsafe-no-fsync \
        --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
        --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
        --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
        --initial-cluster "default=http://127.0.0.1:$ETCD_PEER_PORT"
    for i in $(seq "$count"); do
        create_files "$i"
        start_api_server "$i"
    done
    for i in $(seq "$count"); do
        await_ready "$i"
        start_controllers "$i"
    done
}

# Nothing has to survive, and an API server takes 5 seconds to end.
end_process() {
    local pid _
    [ -f "$1" ] || return 0
    pid=$(cat "$1")
    rm -f "$1"
    kill -9 "$pid" 2>/dev/null || return 0
    for _ in $(seq 50); do
        # In a container no process may reap it: then it stays as a zombie. Until its last thread has ended its port is
        # in use.
        if ! [ -e "/proc/$pid" ] || { grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null &&
            [ "$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]; }; then
            return
        fi
        sleep 0.1
    done
}

stop() {
    local file
    for file in "$S"/c*/scheduler.pid "$S"/c*/controllers.pid "$S"/c*/api.pid "$S/etcd.pid"; do
        end_process "$file"
    done
}

signal_api_server() {
    kill "-$1" "$(cat "$S/c$2/api.pid")"
}

restart() {
    end_process "$S/c$1/api.pid"
    start_api_server "$1"
    await_ready "$1"
}

nodes() {
    local i j kubectl
    for i in $(seq "$COUNT"); do
        kubectl=("$BIN/kubectl" --kubeconfig "$S/c$i/kubeconfig")
        for j in $(seq "$1"); do
            "${kubectl[@]}" create --validate=false -f - >/dev/null <<END
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-$j", "labels": {"kubernetes.io/hostname": "node-$j"}},
 "status": {"capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
  "allocatable": {"cpu": "3800m", "memory": "15Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}
END
        done
    done
}

case ${1:-} in
build | version | start | stop | restart | nodes) "$@" ;;
kill) signal_api_server KILL "$2" ;;
freeze) signal_api_server STOP "$2" ;;
thaw) signal_api_server CONT "$2" ;;
*)
    sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
