#!/bin/bash
# An nsys that launches, starts, stops, cancels and lists sessions as 2022.4 does, and records nothing.
# Sessions are folders beside it. What goes wrong: a word in a file `fails` there; a stop waits while there is
# a file `hold`, a start while there is a file `late`. Who asked for what is in `asked`.
here=$(dirname "$0")
verb=$1
shift
[ "$1" != --help ] || exit 0
session='' out=''
words=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --session-new=%q{*) name=${1#*\{} name=${name%\}} session=${!name} ;;
    --session-new=* | --session=*) session=${1#*=} ;;
    -o) out=${2//%%/%}; shift ;;
    -f) shift ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
place=$here/sessions/$session
fails() { grep -qsx "$1" "$here"/fails; }
write() {
  out=$(cat "$place"/out)
  rm "$place"/out
  if fails qdstrm; then echo raw >"$out".qdstrm; else echo report >"$out".nsys-rep; fi
}
echo "$verb ${COCKPIT_NODE:-outside} ${words[*]}" >>"$here"/asked
case $verb in
  launch)
    if fails "launch" && mkdir "$here"/failed 2>/dev/null; then
      echo "Agent launcher failed." >&2
      exit 1
    fi
    mkdir -p "$place"
    "$@"
    status=$?
    [ ! -e "$place"/out ] || write
    rm -r "$place"
    exit $status
    ;;
  sessions)
    echo "              ID         TIME                       STATE LAUNCH NAME"
    for each in "$here"/sessions/*/; do
      [ -d "$each" ] || continue
      state=Idle
      [ ! -e "$each"/out ] || state=Collection
      echo "          108669        00:03 $state      1 $(basename "$each")"
    done
    exit 0
    ;;
esac
if [ ! -d "$place" ]; then
  echo "No such session exists." >&2
  exit 1
fi
if fails "$verb"; then
  echo "nsys cannot do that now." >&2
  exit 1
fi
case $verb in
  start)
    if [ -e "$place"/out ]; then
      echo "A collection is already in progress." >&2
      exit 1
    fi
    while [ -e "$here"/late ]; do sleep 0.1; done
    echo "$out" >"$place"/out
    ;;
  stop)
    [ -e "$place"/out ] || exit 1
    while [ -e "$here"/hold ]; do
      echo more >>"$(cat "$place"/out)".part
      sleep 0.1
    done
    write
    ;;
  cancel) rm "$place"/out ;;
esac
