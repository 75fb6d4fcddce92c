#!/bin/sh
# @PROGRAM@ @VERSION@ in one file: this script, and after its last line a compressed archive with the program and its
# own Python. The first start unpacks the archive to a directory of the user, and every start runs it from there:
#
#   $CORRAL_UNPACK_DIR, if set; else /var/cache/corral for root; else $XDG_CACHE_HOME/corral or ~/.cache/corral
#
# 1. Each unpacked program has a directory that is named by the SHA-256 of the archive, so versions never mix.
# 2. The archive is compared with its SHA-256 and unpacked to a new directory. The new directory gets its name when it
#    is complete and on the disk, so an interrupted first start, or two at the same time, do no harm.
# 3. Before each start, every directory on the way must belong to root or to this user, and no other user may write to
#    it. Directories above may have the sticky bit instead, like /tmp. Without this check, another user could put a
#    program there for this user to run. wire/trusted_paths.py has the same rule.
set -fu
PROGRAM=@PROGRAM@ DIGEST=@DIGEST@ BYTES=@BYTES@ MIB=@MIB@ MACHINE=@MACHINE@
KEPT_DAYS=30
ANOTHER_PLACE="set CORRAL_UNPACK_DIR to a directory that only you may write to."
USER_ID=$(id -u)

fail() {
    printf '%s: %s\n' "$PROGRAM" "$1" >&2
    [ -z "${2:-}" ] || printf '  %s\n' "$2" >&2
    exit 126
}

# Fail unless only root and this user can change the directory $1 and the names of the directories above it.
check_trusted() {
    real=$(cd -P -- "$1" 2>/dev/null && pwd -P) || fail "$1: cannot be opened; it may belong to another user" "Remove it, or $ANOTHER_PLACE"
    path='' IFS=/
    set -- /
    for name in $real; do
        [ -z "$name" ] || { path=$path/$name; set -- "$@" "$path"; }
    done
    unset IFS
    found=$(stat -c '%u %a %n' -- "$@") || fail "$real: cannot be read"
    top=${found%% *}
    while read -r owner mode name; do
        # In a user namespace, "/" belongs to the real root, which has another id there.
        [ "$owner" != "$top" ] || [ "$name" = "$real" ] || owner=0
        case $owner in
            0 | "$USER_ID") ;;
            *) fail "$name belongs to the user with id $owner, who could replace the program in it" \
                "Remove it, or $ANOTHER_PLACE" ;;
        esac
        if [ $((0$mode & 022)) != 0 ] && { [ $((0$mode & 01000)) = 0 ] || [ "$name" = "$real" ]; }; then
            fail "other users may write to $name (mode $mode), and could replace the program in it" \
                "Take the right away (chmod go-w $name), or $ANOTHER_PLACE"
        fi
    done <<END
$found
END
}

write_archive() { tail -c "$BYTES" -- "$0" >"$1"; }

unpack() {
    [ "$(uname -m)" = "$MACHINE" ] || fail "this program is for $MACHINE machines, and this is $(uname -m)"
    umask 077
    mkdir -p -- "$BASE" 2>/dev/null || fail "$BASE: cannot be created" "To use another place, $ANOTHER_PLACE"
    check_trusted "$BASE"
    [ ! -t 2 ] || printf '%s: unpacking to %s (once)\n' "$PROGRAM" "$PLACE" >&2
    new=$(mktemp -d -- "$BASE/.new-XXXXXXXX") || fail "$BASE: cannot be written to" "To use another place, $ANOTHER_PLACE"
    trap 'rm -rf -- "$new"' EXIT
    trap 'exit 130' HUP INT TERM
    write_archive "$new/.archive" || fail "$BASE: no room for the program, which needs $MIB MiB"
    sum=$(sha256sum "$new/.archive")
    [ "${sum%% *}" = "$DIGEST" ] || fail "$0 is damaged or incomplete" "Copy or download it again."
    tar -xzf "$new/.archive" --no-same-owner --no-same-permissions -C "$new" && rm -f -- "$new/.archive" &&
        sync -f "$new" || fail "$BASE: no room for the program, which needs $MIB MiB" "Or $ANOTHER_PLACE"
    # If the directory is there already, another first start was faster.
    mv -T -- "$new" "$PLACE" 2>/dev/null || [ -f "$PLACE/$PROGRAM" ] || fail "$PLACE: cannot be created"
    rm -rf -- "$new"
    trap - EXIT HUP INT TERM
    delete_old
}

# Delete versions that were not started for KEPT_DAYS days and that no process of this host runs.
delete_old() {
    running=$(find /proc -mindepth 2 -maxdepth 2 -name exe -exec readlink {} + 2>/dev/null)
    find "$BASE" -mindepth 1 -maxdepth 1 -type d ! -path "$PLACE" -mtime "+$KEPT_DAYS" 2>/dev/null |
        while read -r old; do
            case $running in *"$old/"*) continue ;; esac
            [ -n "$(find "$old/.started" -mtime "-$KEPT_DAYS" 2>/dev/null)" ] || rm -rf -- "$old"
        done
}

before_start() { :; }

start() {
    PLACE=$BASE/$DIGEST
    [ ! -d "$PLACE" ] || check_trusted "$PLACE"
    [ -f "$PLACE/$PROGRAM" ] || unpack
    [ -x "$PLACE/$PROGRAM" ] || fail "$PLACE is on a file system that runs no programs (noexec)" \
        "To use another place, $ANOTHER_PLACE"
    { true >"$PLACE/.started"; } 2>/dev/null
    before_start
    exec "$PLACE/$PROGRAM" "$@"
}
# --- end of functions ---

if [ -n "${CORRAL_UNPACK_DIR:-}" ]; then
    BASE=$CORRAL_UNPACK_DIR
elif [ "$USER_ID" = 0 ]; then
    BASE=/var/cache/corral
else
    case ${XDG_CACHE_HOME:-} in /*) BASE=$XDG_CACHE_HOME/corral ;; *) BASE=${HOME:-/nonexistent}/.cache/corral ;; esac
fi
case $0 in /*) CORRAL_PROGRAM=$0 ;; *) CORRAL_PROGRAM=$PWD/$0 ;; esac
export CORRAL_PROGRAM
start "$@"
