# Settings and the questions of the recipes in this folder, for sh; each recipe reads this file. A site writes what differs into
# /etc/xpulab.conf, or into the file that XPULAB_SETTINGS names: lines such as XPULAB_CARDS=8. $XPULAB_NODE is set by then.
# shellcheck shell=sh

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH} # a prolog has none
export PATH XPULAB_NODE
XPULAB_HOME=${XPULAB_HOME:-$(dirname "$(dirname "$here")")} # the clone; $here is this folder
XPULAB_NODE=${XPULAB_NODE:-${SLURMD_NODENAME:-$(hostname -s)}}
: "${XPULAB_SETTINGS:=/etc/xpulab.conf}"

# not_of_root DEPTH PATH ...: where this is root, prints the first of these, of what is below them to this depth, or of the folders
# above them, that another user can change: that user is root, with what root runs here. In a sticky folder nobody renames root's files.
not_of_root() {
    [ "$(id -u)" = 0 ] || return 0
    depth=$1
    shift
    of_others='! -uid 0 -o -perm -002 ! ( -type d -perm -1000 ) -o -perm -020 ! -gid 0 ! ( -type d -perm -1000 )'
    # shellcheck disable=SC2086 # words of find
    find -L "$@" -maxdepth "$depth" \( $of_others \) -print -quit 2>/dev/null
    for path in "$@"; do
        while path=$(dirname "$path") && [ "$path" != / ] && [ "$path" != . ]; do
            # shellcheck disable=SC2086
            find -L "$path" -maxdepth 0 \( $of_others \) -print 2>/dev/null
        done
    done
}

XPULAB_NOT_OF_ROOT=$(not_of_root 0 "$XPULAB_SETTINGS")
if [ -r "$XPULAB_SETTINGS" ] && [ -z "$XPULAB_NOT_OF_ROOT" ]; then
    # shellcheck source=/dev/null
    . "$XPULAB_SETTINGS"
fi

: "${XPULAB_PYTHON:=$XPULAB_HOME/.venv/bin/python}"
: "${XPULAB_VERDICTS:=/var/lib/xpulab}"   # a folder for each run of this machine; on a shared disk: /shared/xpulab/$XPULAB_NODE
: "${XPULAB_MAX_AGE:=36}"                 # hours after which a green verdict counts as none
: "${XPULAB_DEVICE:=xpu}"                 # by name; auto is red on a machine that lost its cards, as far as bus, driver or wheel show it
: "${XPULAB_CARDS:=1}"
: "${XPULAB_LEVEL:=smoke}"
: "${XPULAB_EXPECT:=}"                    # how many cards must be there, as 8; else they are not counted
: "${XPULAB_KEEP:=14}"                    # runs
: "${XPULAB_TEXTFILES:=}"                 # the textfile directory of Prometheus' node exporter, or nothing
# what a green run must have been to count, as xpulab gate --require; empty: as much as the red one that it ends
: "${XPULAB_REQUIRE=device=$XPULAB_DEVICE,cards=$XPULAB_CARDS,level=$XPULAB_LEVEL,notebooks=all}"
: "${XPULAB_WITHOUT_VERDICT:=0}"          # where there is no verdict the prolog starts the job, or with 1 drains the node
: "${XPULAB_CHECK_HOST:=0}"               # 1: prolog and epilog look at the host too
: "${XPULAB_CHECKPOINTS:=}"               # the folder of checkpoints, whose free space is part of that
: "${XPULAB_DRY_RUN:=0}"                  # 1: say what would be drained or tainted, and do not
: "${XPULAB_MOST_DRAINED:=10%}"           # no more nodes of the cluster are drained within an hour: a number, or a part as 10%
: "${XPULAB_HOLD_AFTER:=3}"               # a node that was drained so often within a week is not resumed

XPULAB_NOT_OF_ROOT=$XPULAB_NOT_OF_ROOT$(
    not_of_root 99 "$XPULAB_HOME/env" "$XPULAB_HOME/xpulab"
    not_of_root 0 "$XPULAB_PYTHON" "$(readlink -f "$XPULAB_PYTHON")"
    not_of_root 1 "${XPULAB_PYTHON%/*/*}"/lib/python3*/site-packages
)
if [ -n "$XPULAB_NOT_OF_ROOT" ]; then
    first=$(printf '%s\n' "$XPULAB_NOT_OF_ROOT" | head -n 1)
    XPULAB_REFUSED="root runs nothing that others can change: $first; chown -R root:root $XPULAB_HOME; chmod -R go-w $XPULAB_HOME"
fi

# The file, and not python -m: that would import what the current folder has.
xpulab() {
    if [ -n "${XPULAB_REFUSED:-}" ]; then
        echo "xpulab: $XPULAB_REFUSED" >&2
        return 2
    fi
    (cd "$XPULAB_HOME" && exec "$XPULAB_PYTHON" "$XPULAB_HOME/xpulab/start.py" xpulab "$@")
}

answer_within() { # SECONDS ARGS: the standard output of xpulab ARGS; a driver may hang
    seconds=$1
    shift
    (cd "$XPULAB_HOME" && exec timeout "$seconds" "$XPULAB_PYTHON" "$XPULAB_HOME/xpulab/start.py" xpulab "$@") 2>/dev/null
}

# Prints one line. Returns 1: something is wrong with this host, and the line is a drain reason; else 0.
xpulab_host() {
    [ "$XPULAB_CHECK_HOST" = 1 ] && [ -z "${XPULAB_REFUSED:-}" ] || return 0
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
    if [ -n "${XPULAB_REFUSED:-}" ]; then
        echo "xpulab: unknown, $XPULAB_REFUSED"
        return 2
    fi
    if [ -n "$XPULAB_EXPECT" ]; then
        line=$(answer_within 20 cards "$XPULAB_EXPECT" --device "$XPULAB_DEVICE") || case $line in
            'xpulab: cards '*) echo "[node_problem] xpulab ${line#xpulab: }"; return 1 ;;
            *) echo "xpulab: unknown, the cards cannot be counted (XPULAB_EXPECT=$XPULAB_EXPECT)"; return 2 ;;
        esac
    fi
    set -- gate "$XPULAB_VERDICTS" --max-age "$XPULAB_MAX_AGE" --reason ${XPULAB_REQUIRE:+--require "$XPULAB_REQUIRE"}
    code=0
    line=$(answer_within 4 "$@") || code=$?
    echo "${line:-xpulab: unknown, $XPULAB_PYTHON cannot run xpulab}"
    case $code:$line in
        0:'xpulab: green'* | 0:'xpulab: warning'*) return 0 ;;
        1:'[node_problem] xpulab '*) return 1 ;;
        *) return 2 ;;
    esac
}
