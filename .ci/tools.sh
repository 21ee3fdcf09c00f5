#!/usr/bin/env bash
# Helm and promtool for tests of deploy/, built from Go modules into a folder outside of the repository.
#
#   tools.sh build        both into $TOOLS_HOME; once, about 5 minutes of processor time; ends with 3 without Go
#   tools.sh path NAME    the program: that of PATH, else the one that was built; ends with 3 where there is none
set -euo pipefail

TOOLS_HOME=${TOOLS_HOME:-${HOME:-/tmp}/.cache/fleetui/tools}
HELM=4.3.1
PROMETHEUS=0.316.0 # as a module; its release is 3.16.0

fail() {
    echo "tools.sh: $1" >&2
    exit 3
}

path() {
    local built
    case $1 in
    helm) built=$TOOLS_HOME/helm-$HELM ;;
    promtool) built=$TOOLS_HOME/promtool-$PROMETHEUS ;;
    *) fail "$1 is not known here" ;;
    esac
    if ! command -v "$1"; then
        [ -x "$built" ] || fail "there is no $1; build it with: make tools"
        echo "$built"
    fi
}

# A module may be replaced or excluded in the go.mod of a program: `go install` refuses that, `go build` does not.
build_program() {
    local name=$1 module=$2 version=$3 package=$4
    shift 4
    if [ -x "$TOOLS_HOME/$name-$version" ]; then
        echo "$name $version is built: $TOOLS_HOME/$name-$version"
        return
    fi
    echo "Building $name $version from Go modules with $(go env GOVERSION)"
    mkdir -p "$TOOLS_HOME/build/$name"
    cd "$TOOLS_HOME/build/$name"
    rm -f go.mod go.sum
    go mod init "tools.test/$name" 2>/dev/null
    go mod edit -require "$module@v$version"
    go build -trimpath "$@" -o "$TOOLS_HOME/build/$name/program" "$module/$package" 2>build.log ||
        { tail -5 build.log >&2 && fail "$name could not be built"; }
    # In one step, so that a build that was stopped leaves no half of it.
    mv program "$TOOLS_HOME/$name-$version"
    echo "Built $TOOLS_HOME/$name-$version"
}

build() {
    command -v go >/dev/null || fail "please install Go"
    mkdir -p "$TOOLS_HOME"
    exec 9>"$TOOLS_HOME/lock"
    flock -n 9 || fail "another build is running"
    export GOCACHE=$TOOLS_HOME/gocache GOMODCACHE=$TOOLS_HOME/modules GOFLAGS=-mod=mod GO111MODULE=on CGO_ENABLED=0
    local versions="-X helm.sh/helm/v4/internal/version.version=v$HELM"
    build_program helm helm.sh/helm/v4 "$HELM" cmd/helm -ldflags "-s -w $versions"
    # Without the clients of clouds, which promtool has for discovering what to scrape.
    build_program promtool github.com/prometheus/prometheus "$PROMETHEUS" cmd/promtool -tags remove_all_sd -ldflags "-s -w"
    # Go's cache of modules has no write permissions.
    [ ! -d "$GOMODCACHE" ] || chmod -R u+w "$GOMODCACHE"
    rm -rf "$GOMODCACHE" "$GOCACHE" "$TOOLS_HOME/build"
}

case ${1:-} in
build | path) "$@" ;;
*)
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
