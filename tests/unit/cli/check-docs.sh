#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
#
# check-docs CELLA SOURCE - the option tables of the program, the man pages and the bash completion say the same.
set -u
cella=$1
src=$2
bad=0
complain() { echo "$*"; bad=1; }

# shellcheck source=/dev/null
source "$src/docs/completion/cella.bash"
verbs=$("$cella" __options) || exit 1
[ -n "$verbs" ] || { echo "no verbs"; exit 1; }

for verb in $verbs; do
    page=$src/docs/man/cella-$verb.1
    [ -f "$page" ] || { complain "$verb has no man page"; continue; }
    grep -q "^\.Xr cella-$verb 1" "$src/docs/man/cella.1" || complain "cella.1 does not name $verb"
    case " $_cella_verbs " in *" $verb "*) ;; *) complain "completion lacks the verb $verb" ;; esac

    # "--name -x ARG" of the program and of the page
    table=$("$cella" __options "$verb" | cut -f1-3 | tr '\t' ' ' | sort)
    paged=$(sed -n 's/^\.It Fl -\([a-z-]*\)\( Ar \([^ ]*\)\)\{0,1\}\( , Fl \([a-z]\).*\)\{0,1\}$/--\1 -\5 \3/p' "$page" |
        sed 's/ $/ -/' | sort)
    [ "$table" = "$paged" ] || complain "$verb: table and man page differ:" "$(diff <(echo "$table") <(echo "$paged"))"
    words=$(_cella_options "$verb" | tr ' ' '\n' | sort)
    [ "$(cut -d' ' -f1 <<<"$table" | sort)" = "$words" ] || complain "$verb: completion differs from the table"
    "$cella" "$verb" --help | grep -q . || complain "$verb --help says nothing"
done

for page in "$src"/docs/man/*.1; do
    sed -n 's/^\.Xr \([a-z-]*\) \([0-9]\).*/\1.\2/p' "$page" | while read -r other; do
        [ -f "$src/docs/man/$other" ] || echo "$page refers to $other, which is not there"
    done
    if command -v mandoc >/dev/null; then
        mandoc -T lint "$page" | grep -v 'referenced manual not found'
    fi
done | grep . && bad=1
exit $bad
