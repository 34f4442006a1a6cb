#!/bin/sh
# test_completion.sh PROGRAM FILES: the completions and manual pages in FILES say what PROGRAM's help says.
set -eu
program=$1
files=$2
failures=0
fail() {
  echo "test_completion: $*"
  failures=$((failures + 1))
}

# complete WORD ...: what bash offers for the last word, sorted, on one line.
complete() {
  bash --norc -c 'source "$1"; shift; COMP_WORDS=(bppsa "$@"); COMP_CWORD=$#; _bppsa
    [ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}"' bash "$files/bppsa.bash" "$@" | LC_ALL=C sort | tr '\n' ' '
}
expect() { # expect WANTED WORD ...
  wanted=$1
  shift
  found=$(complete "$@")
  [ "$found" = "$wanted" ] || fail "bppsa $*: '$found', expected '$wanted'"
}
expect 'train ' tr
expect 'gru ' train g
expect 'all bce bce-all last mse mse-all ' train rnn --loss ''
expect '--seq-len ' train rnn --seq
expect 'linear ' plan gru --algorithm l
expect 'linear ' plan gru --algorithm = l
expect '--stages ' schedule gpipe --stag
expect '--kernel ' jacobian conv2d --ke
expect '--labels ' grad net.json --lab

# The options of every command, one a line, sorted: of its help, of its manual page, of both completions.
of_help() { "$program" $1 --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | LC_ALL=C sort -u | tr '\n' ' '; }
of_manual() { # the part of the page of the verb that begins with the command's title
  escaped=$(echo "$1" | sed 's/-/\\-/g')
  sed -n "/^\.SS bppsa $escaped\$/,/^Example:/p" "$files/bppsa-${1%% *}.1" | sed -n 's/^\.B \(\\-\\-[a-z0-9\\-]*\).*/\1/p' |
    tr -d '\\' | LC_ALL=C sort -u | tr '\n' ' '
}
of_zsh() { # the case of the command
  sed -n "/^  '$1'\( \|)\|\*\)/,/^    ;;/p" "$files/_bppsa" | sed -n "s/^      '\(--[a-z0-9-]*\).*/\1/p" |
    LC_ALL=C sort -u | tr '\n' ' '
}
commands=$("$program" --help | sed -n '/^Commands:/,/^$/s/^  \(.\{20\}\) .*/\1/p' | sed 's/ *$//' | tr ' ' '/')
for command in $commands; do
  command=$(echo "$command" | tr '/' ' ')
  typed=$(echo "$command" | sed 's/FILE\.json/net.json/')
  case $command in *' '*) pattern=$command ;; *) pattern="$command " ;; esac
  wanted=$(of_help "$typed")
  [ -n "$wanted" ] || fail "$command has no options in its help"
  case $typed in *' '*) last='' ;; *) last=x ;; esac
  [ "$(complete $typed $last --)" = "$wanted" ] || fail "bash, $command: '$(complete $typed $last --)', expected '$wanted'"
  [ "$(of_manual "$command")" = "$wanted" ] || fail "manual, $command: '$(of_manual "$command")', expected '$wanted'"
  case $command in *FILE.json) continue ;; esac
  [ "$(of_zsh "$pattern")" = "$wanted" ] || fail "zsh, $command: '$(of_zsh "$pattern")', expected '$wanted'"
done
[ "$(echo "$commands" | wc -w)" -gt 40 ] || fail "the help lists $(echo "$commands" | wc -w) commands: the search is wrong"
bash -n "$files/bppsa.bash" || fail "bash does not read its completion"
if command -v zsh >/dev/null 2>&1; then
  zsh -n "$files/_bppsa" || fail "zsh does not read its completion"
fi
if command -v groff >/dev/null 2>&1; then
  for page in "$files"/*.1; do
    groff -man -Tutf8 -ww -z "$page" 2>"$files/warnings" || fail "$page"
    [ ! -s "$files/warnings" ] || fail "$page: $(cat "$files/warnings")"
  done
fi
[ "$failures" -eq 0 ]
