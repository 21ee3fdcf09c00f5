#!/usr/bin/env bash
# PostgreSQL, Redis and RabbitMQ for tests: without root's rights, on this machine only, on free ports.
#
#   services.sh start [postgres] [redis] [rabbitmq]    all three when none is named; 3 when a program is missing
#   services.sh stop                                   whatever was started in the folder
#   services.sh urls                                   what to export so that FleetUI uses what runs
#
# Everything they write goes into the folder S. On Debian the programs come with
#   apt-get install --no-install-recommends postgresql redis-server rabbitmq-server
set -euo pipefail

S=${S:-${TMPDIR:-/tmp}/fleetui-services}
# Chosen at the start, so that several test runs on one machine do not meet.
if [ -f "$S/ports" ]; then
    . "$S/ports"
fi

# The newest version of those that are installed; none where none is.
newest() {
    find "$1" -maxdepth 2 -name "$2" 2>/dev/null | sort -V | tail -1 || true
}
POSTGRES_BIN=$(newest /usr/lib/postgresql bin)
RABBITMQ_BIN=$(newest /usr/lib/rabbitmq/lib sbin)

# PostgreSQL refuses to run as root. Not `runuser`: it resets HOME, without which RabbitMQ's cookie is not found.
unprivileged() {
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=nobody --regid=nogroup --clear-groups -- "$@"
    else
        "$@"
    fi
}

# Exits when a program is not there.
need() {
    if ! [ -x "$2" ] && ! command -v "$2" >/dev/null; then
        echo "services.sh: $1 is not installed; on Debian: apt-get install --no-install-recommends $3" >&2
        exit 3
    fi
}

# Asks again every tenth of a second, for 30 seconds.
await() {
    local name=$1
    shift
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then
            return
        fi
        sleep 0.1
    done
    echo "services.sh: $name did not come up; see $S" >&2
    exit 1
}

port_answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1")
}

choose_ports() {
    python3 - POSTGRES_PORT REDIS_PORT RABBITMQ_PORT RABBITMQ_PEERS_PORT RABBITMQ_NAMES_PORT >"$S/ports" <<'END'
import socket, sys
sockets = [(name, socket.create_server(("127.0.0.1", 0))) for name in sys.argv[1:]]
print(*(f"{name}={opened.getsockname()[1]}" for name, opened in sockets), sep="\n")
END
    . "$S/ports"
}

start_postgres() {
    # Nothing has to survive a crash here, so nothing waits for the disk.
    local careless="-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
    unprivileged "$POSTGRES_BIN/initdb" -D "$S/postgres" -U app -A trust -N -E UTF8 --locale=C >/dev/null
    unprivileged "$POSTGRES_BIN/pg_ctl" -D "$S/postgres" -w -s -l "$S/postgres.log" \
        -o "-p $POSTGRES_PORT -k $S -c listen_addresses=127.0.0.1 $careless" start
    unprivileged "$POSTGRES_BIN/createdb" -h 127.0.0.1 -p "$POSTGRES_PORT" -U app app
}

start_redis() {
    unprivileged redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --daemonize yes --dir "$S" \
        --save '' --appendonly no --pidfile "$S/redis.pid" --logfile "$S/redis.log" >/dev/null
    await Redis redis-cli -p "$REDIS_PORT" ping
}

# Its programs take all this from the environment, those that stop it too.
rabbitmq_environment() {
    export HOME=$S/rabbitmq
    export RABBITMQ_NODENAME=ci@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$RABBITMQ_PORT
    export RABBITMQ_DIST_PORT=$RABBITMQ_PEERS_PORT ERL_EPMD_PORT=$RABBITMQ_NAMES_PORT ERL_EPMD_ADDRESS=127.0.0.1
    export RABBITMQ_MNESIA_BASE=$HOME/data RABBITMQ_LOG_BASE=$HOME/log RABBITMQ_PID_FILE=$HOME/pid
    export RABBITMQ_ENABLED_PLUGINS_FILE=$HOME/plugins RABBITMQ_CONF_ENV_FILE=/dev/null
    export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
}

start_rabbitmq() {
    rabbitmq_environment
    unprivileged mkdir "$HOME"
    echo '[].' | unprivileged tee "$HOME/plugins" >/dev/null
    unprivileged "$RABBITMQ_BIN/rabbitmq-server" -detached >/dev/null 2>&1
    await RabbitMQ port_answers "$RABBITMQ_PORT"
}

start() {
    local wanted=" ${*:-postgres redis rabbitmq} "
    # Before anything is started: all or nothing.
    case $wanted in *" postgres "*) need PostgreSQL "$POSTGRES_BIN/initdb" postgresql ;; esac
    case $wanted in *" redis "*) need Redis redis-server redis-server ;; esac
    case $wanted in *" rabbitmq "*) need RabbitMQ "$RABBITMQ_BIN/rabbitmq-server" rabbitmq-server ;; esac

    stop
    rm -rf "$S"
    mkdir -p "$S"
    if [ "$(id -u)" -eq 0 ]; then
        chown nobody "$S"
    fi
    choose_ports
    case $wanted in *" postgres "*) start_postgres ;; esac
    case $wanted in *" redis "*) start_redis ;; esac
    case $wanted in *" rabbitmq "*) start_rabbitmq ;; esac
}

stop() {
    if [ -f "$S/postgres/postmaster.pid" ]; then
        unprivileged "$POSTGRES_BIN/pg_ctl" -D "$S/postgres" -m fast -s stop
    fi
    if [ -f "$S/redis.pid" ]; then
        redis-cli -p "$REDIS_PORT" shutdown nosave >/dev/null 2>&1 || true
    fi
    if [ -d "$S/rabbitmq/data" ]; then
        (
            rabbitmq_environment
            unprivileged "$RABBITMQ_BIN/rabbitmqctl" -q stop || true
            unprivileged epmd -port "$RABBITMQ_NAMES_PORT" -kill >/dev/null || true
        )
    fi
}

urls() {
    if [ -f "$S/postgres/postmaster.pid" ]; then
        echo "DATABASE_URL=postgres://app@127.0.0.1:$POSTGRES_PORT/app"
    fi
    if [ -f "$S/redis.pid" ]; then
        echo "CELERY_BROKER_URL=redis://127.0.0.1:$REDIS_PORT/0"
    elif [ -d "$S/rabbitmq/data" ]; then
        echo "CELERY_BROKER_URL=amqp://guest:guest@127.0.0.1:$RABBITMQ_PORT//"
    fi
}

case ${1:-} in
start | stop | urls) "$@" ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
