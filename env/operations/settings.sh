# Settings and the questions of the recipes in this folder, for sh; each recipe reads this file. A site writes what differs into
# /etc/xpulab.conf, or into the file that XPULAB_SETTINGS names: lines such as XPULAB_CARDS=8. $XPULAB_NODE is set by then.
# shellcheck shell=sh

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin${PATH:+:$PATH} # a prolog has none
XPULAB_HOME=${XPULAB_HOME:-$(dirname "$(dirname "$here")")} # the clone; $here is this folder
XPULAB_NODE=${XPULAB_NODE:-${SLURMD_NODENAME:-$(hostname -s)}}
export PATH XPULAB_HOME XPULAB_NODE

XPULAB_REFUSED=
refuse() { # REASON: nothing is run here, and no verdict is known
    XPULAB_REFUSED=${XPULAB_REFUSED:-$1}
}

# Packages that the questions below do not import: thousands of files, for a check of some seconds. measure.sh looks at all of them.
: "${disk_seconds=10}" # of a look at files
: "${not_imported=$(printf ' ! -name %s' _distutils_hack annotated_doc annotated_types arrow attr attrs click dateutil fastjsonschema fqdn idna isoduration \
    jsonschema jsonschema_specifications markdown_it mdurl packaging pydantic pydantic_core pygments referencing rich rpds shellingham \
    typer typing_inspection uri_template webcolors yaml)}"
everybody='-perm -002 ! ( -type d -perm -1000 )' # in a sticky folder nobody renames what others own
others="! -uid 0 -o $everybody -o -perm -020 ! ( -type d -perm -1000 )" # an access list of another user shows as the group's rights

find_first() { # PATH ... TESTS: $found is the first file that fits them, or nothing. A disk that hangs is said.
    found=
    [ -z "$XPULAB_REFUSED" ] || return 0
    found=$(timeout -k 1 "$disk_seconds" find -L "$@" -print -quit 2>/dev/null)
    case $? in 124 | 137) refuse "a disk does not answer within $disk_seconds s: $1" ;; esac
}

# find_changeable BELOW ABOVE PATH ...: $found is the first of these paths and of what is below them that fits BELOW, or of the folders
# above them that fits ABOVE. Packages of the Python that made a .venv, others that are not imported, and links that lead nowhere are
# left out.
find_changeable() {
    below=$1 above=$2
    shift 2
    # shellcheck disable=SC2086 # words of find
    find_first "$@" -name site-packages -prune -o -regex '.*/site-packages/\./[^/]*' -type d $not_imported -prune -o ! -type l \( $below \)
    [ -z "$found$XPULAB_REFUSED" ] || return 0
    for path in "$@"; do
        shift
        for folder in "$path" "$(readlink -f "$path")"; do
            while folder=${folder%/*} && [ "${folder#/}" != "$folder" ]; do set -- "$@" "$folder"; done
        done
    done
    # shellcheck disable=SC2086
    find_first "$@" -prune \( $above \)
}

refuse_of_others() { # PATH ...: where this is root and another user can change them: that user is root, with what root runs
    [ "$(id -u)" = 0 ] || return 0
    find_changeable "$others" "$others" "$@"
    [ -z "$found" ] || refuse "root runs nothing that others can change: $found; chown -R root:root $XPULAB_HOME/; chmod -R go-w $XPULAB_HOME/"
}

unknown_settings() { # FILE: the variables it sets that look like ours, and that neither the recipes nor xpulab name
    grep -v '^[[:space:]]*#' "$1" | grep -o '\<XPULAB[A-Za-z0-9_]*=' | while IFS='=' read -r name; do
        grep -rqw --include='*.sh' --include='*.py' -e "$name" "$here" "$here/../../xpulab" || echo "$name"
    done
}

# The file is tried in a shell of its own: one that ends its shell would end a prolog with 2, and Slurm would drain every node.
if [ -n "${XPULAB_SETTINGS:-}" ] || [ -e /etc/xpulab.conf ] || [ -L /etc/xpulab.conf ]; then
    : "${XPULAB_SETTINGS:=/etc/xpulab.conf}"
    refuse_of_others "$XPULAB_SETTINGS"
    if [ -n "$XPULAB_REFUSED" ]; then
        :
    elif [ ! -r "$XPULAB_SETTINGS" ] || [ -d "$XPULAB_SETTINGS" ]; then
        refuse "$XPULAB_SETTINGS cannot be read"
    elif grep -q "$(printf '\r')" "$XPULAB_SETTINGS"; then
        refuse "$XPULAB_SETTINGS has the line ends of Windows: sed -i 's/\r\$//' $XPULAB_SETTINGS"
    else
        # shellcheck disable=SC2016 # of that shell
        tried=$(LC_ALL=C sh -c 'sh -n "$1" && . "$1" >/dev/null; echo whole' sh "$XPULAB_SETTINGS" 2>&1)
        unknown=$(unknown_settings "$XPULAB_SETTINGS" | head -n 1)
        if [ "$tried" != whole ]; then
            refuse "$XPULAB_SETTINGS has a line that fails, or that ends its shell${tried:+: $(echo "$tried" | head -n 1)}"
        elif [ -n "$unknown" ]; then
            refuse "$XPULAB_SETTINGS sets $unknown, which nothing reads: $here/settings.sh lists the settings"
        else
            set -a # also for what xpulab itself reads
            # shellcheck source=/dev/null
            . "$XPULAB_SETTINGS"
            set +aeu
        fi
    fi
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
: "${XPULAB_AMONG:=}"                    # the partition whose nodes count for a share; empty: all nodes of the cluster
: "${XPULAB_HOLD_AFTER:=3}"               # a node that was drained so often within a week is not resumed

case $XPULAB_VERDICTS in /*) ;; *) XPULAB_VERDICTS=$XPULAB_HOME/$XPULAB_VERDICTS ;; esac
prefix=${XPULAB_PYTHON%/*/*}
python=$(readlink -f "$(command -v "$XPULAB_PYTHON")")
refuse_of_others "$XPULAB_HOME/env" "$XPULAB_HOME/xpulab" "$XPULAB_HOME/notebooks" "$XPULAB_HOME/data" "$XPULAB_PYTHON" "$python" \
    "$prefix/pyvenv.cfg" "$prefix"/lib/python3*/site-packages/. "${python%/*/*}"/lib*/python3.*
find_changeable "-perm -002" "$everybody" "$XPULAB_VERDICTS"
[ -z "$found" ] || refuse "everybody can change the verdicts: chmod o-w $found"
for flag in "CHECK_HOST=$XPULAB_CHECK_HOST" "WITHOUT_VERDICT=$XPULAB_WITHOUT_VERDICT"; do
    case ${flag#*=} in 0 | 1) ;; *) refuse "XPULAB_$flag is neither 0 nor 1" ;; esac
done
case $XPULAB_MAX_AGE in *[!0-9.]* | *.*.* | .) refuse "XPULAB_MAX_AGE=$XPULAB_MAX_AGE is no number of hours" ;; esac

# answer_within SECONDS ARGS: the standard output of xpulab ARGS; a driver may hang. The file, and not python -m: that would import what
# the current folder has. The cards of a job, which Slurm names to its prolog and epilog, are not all that the node has.
answer_within() {
    seconds=$1
    shift
    set -- timeout -k 1 "$seconds" "$XPULAB_PYTHON" "$XPULAB_HOME/xpulab/start.py" xpulab "$@"
    (
        unset CUDA_VISIBLE_DEVICES XPU_VISIBLE_DEVICES XPULINK_VISIBLE_DEVICES CXPU_VISIBLE_DEVICES
        cd "$XPULAB_HOME" && XPULAB_LANG=en "$@"
    ) 2>/dev/null
}

# Prints one line. Returns 1: something is wrong with this host, and the line is a drain reason; else 0.
xpulab_host() {
    [ "$XPULAB_CHECK_HOST" = 1 ] && [ -z "$XPULAB_REFUSED" ] || return 0
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
    if [ -n "$XPULAB_REFUSED" ]; then
        echo "xpulab: unknown, $XPULAB_REFUSED"
        return 2
    fi
    if [ -n "$XPULAB_EXPECT" ]; then
        again="host --expect $XPULAB_EXPECT --device $XPULAB_DEVICE --beside-jobs"
        code=0
        # shellcheck disable=SC2086 # words
        shown=$(answer_within 20 $again) || code=$?
        lost=$(printf '%s\n' "$shown" | sed -n 's/^wrong  *cards: //p') # nothing else of the host is asked here
        case $code in 0 | 1) ;; *) shown= ;; esac
        if [ -z "$shown" ]; then
            echo "xpulab: unknown, the cards cannot be counted (XPULAB_EXPECT=$XPULAB_EXPECT)"
            return 2
        elif [ -n "$lost" ]; then
            echo "[node_problem] xpulab cards $lost; rerun: xpulab $again"
            return 1
        fi
    fi
    set -- gate "$XPULAB_VERDICTS" --max-age "$XPULAB_MAX_AGE" --reason ${XPULAB_REQUIRE:+--require "$XPULAB_REQUIRE"}
    code=0
    line=$(answer_within "${XPULAB_GATE_SECONDS:-15}" "$@") || code=$?
    echo "${line:-xpulab: unknown, $XPULAB_PYTHON cannot run xpulab}"
    case $code:$line in
        0:'xpulab: green'* | 0:'xpulab: warning'*) return 0 ;;
        1:'[node_problem] xpulab '*) return 1 ;;
        *) return 2 ;;
    esac
}
