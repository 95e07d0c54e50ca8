# Settings and the one question of the recipes in this folder, for sh; each recipe reads this file. A site writes what differs into
# /etc/xpulab.conf, or into the file that XPULAB_SETTINGS names: lines such as XPULAB_CARDS=8. $XPULAB_NODE is set by then.
# shellcheck shell=sh

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH} # a prolog has none
export PATH XPULAB_NODE
XPULAB_HOME=${XPULAB_HOME:-$(dirname "$(dirname "$here")")} # the clone; $here is this folder
XPULAB_NODE=${XPULAB_NODE:-${SLURMD_NODENAME:-$(hostname -s)}}
[ ! -r "${XPULAB_SETTINGS:=/etc/xpulab.conf}" ] || . "$XPULAB_SETTINGS"

: "${XPULAB_PYTHON:=$XPULAB_HOME/.venv/bin/python}"
: "${XPULAB_VERDICTS:=/var/lib/xpulab}"   # a folder for each run of this machine; on a shared disk: /shared/xpulab/$XPULAB_NODE
: "${XPULAB_MAX_AGE:=36}"                 # hours after which a green verdict counts as none
: "${XPULAB_DEVICE:=xpu}"                 # by name; auto is red on a machine that lost its cards, as far as bus, driver or wheel show it
: "${XPULAB_CARDS:=1}"
: "${XPULAB_LEVEL:=smoke}"
: "${XPULAB_EXPECT:=}"                    # how many cards must be there, as 8; else they are not counted
: "${XPULAB_KEEP:=14}"                    # runs
: "${XPULAB_TEXTFILES:=}"                 # the textfile directory of Prometheus' node exporter, or nothing
: "${XPULAB_WITHOUT_VERDICT:=0}"          # the prolog's exit code when there is no verdict: 0 starts the job, 1 drains the node
: "${XPULAB_CHECK_HOST:=0}"               # 1: the prolog looks at the host too
: "${XPULAB_CHECKPOINTS:=}"               # the folder of checkpoints, whose free space is part of that

xpulab() {
    (cd "$XPULAB_HOME" && exec "$XPULAB_PYTHON" -m xpulab "$@")
}

answer_within() { # SECONDS ARGS: the standard output of xpulab ARGS; a driver may hang
    seconds=$1
    shift
    (cd "$XPULAB_HOME" && exec timeout "$seconds" "$XPULAB_PYTHON" -m xpulab "$@") 2>/dev/null
}

# Prints one line. Returns 1: something is wrong with this host, and the line is a drain reason; else 0.
xpulab_host() {
    [ "$XPULAB_CHECK_HOST" = 1 ] || return 0
    code=0
    line=$(answer_within 15 host --reason ${XPULAB_CHECKPOINTS:+--checkpoints "$XPULAB_CHECKPOINTS"}) || code=$?
    case $code:$line in
        1:'[node_problem] host '*) echo "$line"; return 1 ;;
        *) return 0 ;;
    esac
}

# Prints one line. Returns 0: this machine is green, 1: it is red, and the line is a drain reason, 2: nothing is known of it.
# A Python that fails is no verdict: red is only what xpulab says is red.
xpulab_verdict() {
    if [ -n "$XPULAB_EXPECT" ]; then
        line=$(answer_within 20 cards "$XPULAB_EXPECT" --device "$XPULAB_DEVICE") || case $line in
            'xpulab: cards '*) echo "[node_problem] xpulab ${line#xpulab: }"; return 1 ;;
            *) echo "xpulab: unknown, the cards cannot be counted (XPULAB_EXPECT=$XPULAB_EXPECT)"; return 2 ;;
        esac
    fi
    code=0
    line=$(answer_within 4 gate "$XPULAB_VERDICTS" --max-age "$XPULAB_MAX_AGE" --reason) || code=$?
    echo "${line:-xpulab: unknown, $XPULAB_PYTHON -m xpulab cannot be run}"
    case $code:$line in
        0:'xpulab: green '*) return 0 ;;
        1:'[node_problem] xpulab '*) return 1 ;;
        *) return 2 ;;
    esac
}
