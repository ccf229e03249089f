# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# bash and GNU coreutils: arrays, process substitution, job control, traps, coprocesses.
bash -c '
set -u
declare -A m=([one]=1 [two]=2); for k in "${!m[@]}"; do echo "$k=${m[$k]}"; done | sort
diff <(printf "%s\n" a b c) <(printf "%s\n" a x c); echo "diff $?"
mapfile -t lines < <(seq 5); echo "${#lines[@]} ${lines[*]:1:3}"
coproc { while read -r l; do echo "co $l"; done; }; echo hello >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"; eval "exec ${COPROC[1]}>&-"; wait
trap "echo child ended" CHLD; sleep 0.01 & wait; trap - CHLD
( trap "echo term; exit 7" TERM; kill -TERM $BASHPID; sleep 1 ); echo "status $?"
sleep 5 & kill $!; wait $! 2>/dev/null; echo "killed $?"
set -m; sleep 0.01 & wait %1; echo "job $?"; set +m
mkdir -p d/e; (cd d/e && pwd -P | sed "s,.*/d,d,"); echo text > d/f; ln d/f d/g; stat -c %h d/f; cp -a d d2; ls -R d2
printf "%s\n" pear apple fig | sort | paste -sd,; seq 10 | shuf --random-source=/dev/zero | wc -l; seq 100 | split -l 30 - part; wc -l part*
date -u -d @0 +%FT%T; touch -d "2001-02-03 04:05:06 UTC" d/f; TZ=UTC stat -c %y d/f; env LC_ALL=C ls -l --time-style=+%F d/f | cut -d" " -f1,2
head -c 100000 /dev/zero | tee z | sha1sum; truncate -s 5 z; wc -c z; dd if=/dev/zero of=z bs=1000 count=3 seek=2 2>/dev/null; stat -c %s z
timeout 0.1 sleep 5; echo "timeout $?"; nice true; nohup true 2>/dev/null; tac <<< $"1\n2" | cat -A; comm -12 <(seq 1 5) <(seq 3 8)
exec 9<>fifo.txt; echo x >&9; exec 9>&-; cat fifo.txt; mkfifo p; (echo through > p) & cat p; wait
ulimit -n 64; ulimit -n; echo $((2**40)) ${#RANDOM} | cut -d" " -f1; printf "%q\n" "a b"; [[ abc =~ b(.) ]] && echo "${BASH_REMATCH[1]}"
sort -n <(seq 2000 | shuf) | md5sum; yes | head -n 100000 | md5sum; cat /no/such 2>&1; false | true; echo "${PIPESTATUS[0]}"
'
