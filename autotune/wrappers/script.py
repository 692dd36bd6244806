"""Shell for the machine at the other end: what POSIX sh, /proc and setsid(1) can do; nothing else is certain there.

No single quotes in it, so that it stays readable inside those that carry it.
"""

PORT_GUARD = """\
if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -Eq "$1"; then
  echo "autotune: address already in use: port $2 on $(uname -n)" >&2
  refuse
fi
shift 2
"""
"""Refuses to start beside a stranger on the port: here nobody could tell whose answers these are.

Arguments: what ``guarded`` gives. What it calls to end is ``refuse``.
"""
REFUSE = "refuse() { exit 98; }\n"
_HANG_UP = """\
refuse() { sleep 1; kill "$PPID"; exit 98; }
"""
"""The stranger may hold what came through the forwarded port, and ssh does not end while it does."""
IN_USE = "autotune: address already in use"
_LOOPBACK = "(0100007F|0+|0{24}01000000|0{16}FFFF00000100007F)"


def guarded(host: str, port: int) -> tuple[str, str]:
    """An expression for the kernel's table of a listener that leaves no room for one on ``host``, and the port."""
    address = _LOOPBACK if host == "127.0.0.1" else "[0-9A-F]+"
    return f" {address}:{port:04X} [0-9A-F]+:[0-9A-F]+ 0A ", str(port)


_FAMILY = """\
family() {
  sids=" "
  for path in $(grep -lsF "$1" /proc/[0-9]*/environ); do
    row "${path%/environ}/stat" && sids="$sids$sid "
  done
  [ "$sids" = " " ] && return
  pids=" "; rows=""
  for path in /proc/[0-9]*/stat; do
    row "$path" || continue
    case $sids in *" $sid "*) pids="$pids$pid "; rows="$rows $pid:$ppid" ;; esac
  done
}
row() {
  { read -r line < "$1"; } 2>/dev/null || return 1
  pid=${line%% *}; set -- ${line##*) }
  [ "$1" != Z ] && [ "$1" != X ] && ppid=$2 && sid=$4 && [ "$sid" != 0 ]
}
signal() {
  rows=""
  family "AUTOTUNE_REMOTE_TRIAL=$2"
  [ -n "$rows" ] || return 1
  for entry in $rows; do
    if [ "$1" = TERM ]; then
      case $pids in *" ${entry#*:} "*) continue ;; esac
    fi
    [ "$1" = FIND ] || kill -"$1" "${entry%:*}" 2>/dev/null
    echo "${entry%:*}"
  done
}
"""
"""The processes of a mark: who carries it (in a variable of its own: where both ends are one machine, the client is no
server), and who shares a session with one of them. TERM goes to those without a parent among them: engines take the
end of a child for a crash."""

FIND_OR_SIGNAL = f"""\
{_FAMILY}signal "$1" "$2"
exit 0
"""
"""Arguments: FIND, TERM or KILL, and a mark or its beginning. Prints the processes, one a line."""

TETHERED = f"""\
{_FAMILY}{_HANG_UP}mark=$1; shift
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
{PORT_GUARD}end() {{
  for second in $1; do signal TERM "$mark" >/dev/null || return 0; sleep 1; done
  signal KILL "$mark" >/dev/null
}}
exec 3<&0
env AUTOTUNE_REMOTE_TRIAL="$mark" setsid "$@" 3<&- </dev/null &
child=$!
( while read -r line <&3; do :; done; end "1 2 3 4 5 6 7 8 9 10" ) >/dev/null 2>&1 &
tether=$!
exec 3<&-
wait "$child"; code=$?
kill "$tether" 2>/dev/null
end "1 2"
exit "$code"
"""
"""Arguments: mark, those of the guard, and the server's command line. Reads variables, one a line, up to an empty
line; then the end of the input is the end of the server: a tuner that was killed, or a line that was cut, leaves
nothing running."""
